"""Find the packages of a published channel that become wheels: PyTorch for every Python, and the extensions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name
from rattler.exceptions import ExtractError
from rattler.package import IndexJson

from groundwork.errors import ConfigError, UsageError
from megabuild.store import published
from pyg_extensions.table import EXTENSIONS

TORCH = "torch"
_PROJECTS = {"pytorch": TORCH, **{extension.conda: extension.name for extension in EXTENSIONS}}
_BUILD = re.compile(
    r"(?P<accelerator>cpu|cuda\d+)_(?P<source>[a-z]+)_(?:(?:exact|stable)_)?(?:py(?P<python>3\d+t?)|abi3)_"
)
#: exactly one version (``==2.13.0``), one minor version (``>=2.13.0,<``), or every later version (``>=2.13.0``)
_TORCH_PIN = re.compile(r"pytorch (?P<sign>==|>=)(?P<version>[\d.]+)(?P<below>,<)?")
#: Only conda's PyTorch for CUDA requires Triton; upstream's wheels get this requirement from a variable of their build.
_TRITON = re.compile(r"triton ([=~]=)([\d.]+)$")


@dataclass(frozen=True, kw_only=True)
class BuiltPackage:
    """A published package that becomes a wheel."""

    project: str  #: its name on an index: ``torch``, ``torch_scatter``
    version: str  #: of the package
    python: str | None  #: ``3.12``, or None for a package that works with every Python
    path: Path  #: the package's file
    sha256: str  #: of the file
    build_string: str
    accelerator: str  #: ``cpu``, ``cu132``; in a rehearsal ``cpu.rehearsal``
    official: bool  #: whether PyTorch comes from an official wheel; if not, it was compiled
    torch: str  #: the PyTorch version that it was compiled with, without a local part
    later: bool = False  #: whether it works with every later PyTorch, too
    cuda: str | None = None  #: the CUDA version that it was compiled for: ``12.4``
    #: requirements that upstream's metadata lack: other extensions, Triton
    more: tuple[str, ...] = ()

    @property
    def wheel_version(self) -> str:
        """Version of the wheel; as upstream's, its local part names the PyTorch and the accelerator it is for."""
        if self.project == TORCH:
            return f"{self.version}+{self.accelerator}"
        return f"{self.version}+pt{''.join(self.torch.split('.')[:2])}{self.accelerator}"

    @property
    def torch_pin(self) -> str:
        """An extension's requirement on PyTorch; an official PyTorch may have any local part, as indexes differ."""
        if self.later:
            return f"{TORCH}>={self.torch}"
        return f"{TORCH}=={self.torch}" + ("" if self.official else f"+{self.accelerator}")

    @property
    def requires(self) -> tuple[str, ...]:
        """The wheel's requirements in addition to upstream's metadata."""
        return self.more if self.project == TORCH else (self.torch_pin, *self.more)


def find(channel: Path, pythons: Sequence[str], names: Sequence[str]) -> tuple[BuiltPackage, ...]:
    """Return a channel's packages for wheels, PyTorch first, and only the latest build of each.

    The channel is named like its run: ``linux_64_cpu_debian``, ``linux_64_cpu-rehearsal``. ``pythons`` and ``names``
    (projects or conda packages) select some of them; empty means all.

    Raises ConfigError: The channel has nothing that can become a wheel.
    Raises IntegrityError: A package is missing, or damaged since it was published.
    Raises UsageError: It has nothing for these Pythons, or no package with one of the names.
    """
    every = _newest(_read(channel, record) for record in published.records(channel).values())
    # upstream's own wheel is on upstream's index already
    candidates = [package for package in every if package.project != TORCH or not package.official]
    if not candidates:
        raise ConfigError(
            f"{channel.name} has nothing for a wheel: neither extensions nor a PyTorch compiled by megabuild",
            f"build extensions: python3 build-locally.py {channel.name.partition('-')[0]} --pyg source; or install "
            "the conda packages: python3 scripts/megabuild env create",
        )
    fitting = [package for package in candidates if package.python in (None, *pythons) or not pythons]
    projects = {canonicalize_name(package.project) for package in fitting}
    requested = {canonicalize_name(_PROJECTS.get(name, name)) for name in names} or projects
    if not projects or requested - projects:
        lacking = ", ".join(sorted(requested - projects)) or "package"
        wanted = f" for Python {', '.join(pythons)}" if pythons else ""
        there = sorted(projects) or dict.fromkeys(package.python for package in candidates if package.python)
        raise UsageError(f"{channel.name} has no {lacking}{wanted}", f"choose from {', '.join(there)}")
    return tuple(package for package in fitting if canonicalize_name(package.project) in requested)


def _read(channel: Path, record: published.PublishedPackage) -> BuiltPackage | None:
    """Return the package of a record, or None if it is neither PyTorch nor an extension."""
    path = channel / record.path
    name, version, build = path.name.removesuffix(".conda").rsplit("-", 2)
    parts = _BUILD.match(build)
    if name not in _PROJECTS or parts is None:
        return None
    try:
        depends = IndexJson.from_package_archive(path).depends
    except ExtractError:
        published.check(path)
        raise
    pins = [pin for pin in map(_TORCH_PIN.match, depends) if pin]
    imports = {spec.split()[0] for spec in depends} & _PROJECTS.keys() - {"pytorch"}
    rehearsal = ".rehearsal" if "-rehearsal" in channel.name else ""
    triton = [f"triton{pin[1]}{pin[2]}" for pin in map(_TRITON.match, depends) if pin]
    python = parts["python"]
    digits = parts["accelerator"].removeprefix("cuda")
    return BuiltPackage(
        project=_PROJECTS[name],
        version=version,
        python=f"3.{python[1:]}" if python else None,
        path=path,
        sha256=record.sha256,
        build_string=build,
        accelerator=parts["accelerator"].replace("cuda", "cu") + rehearsal,
        official=parts["source"] == "wheel",
        torch=pins[0]["version"] if pins else version,
        later=bool(pins) and not any(pin["sign"] == "==" or pin["below"] for pin in pins),
        cuda=f"{digits[:-1]}.{digits[-1]}" if digits.isdigit() else None,
        more=(*sorted(_PROJECTS[other] for other in imports), *triton),
    )


def _newest(packages: Iterable[BuiltPackage | None]) -> list[BuiltPackage]:
    chosen: dict[tuple[str, str | None], BuiltPackage] = {}
    for package in sorted(filter(None, packages), key=lambda package: package.path.stat().st_mtime):
        chosen[package.project, package.python] = package
    return sorted(
        chosen.values(),
        key=lambda package: (package.project != TORCH, package.project, _number(package.python or "3.0")),
    )


def _number(python: str) -> tuple[int, str]:
    minor = python.partition(".")[2]
    return int(minor.rstrip("t")), python
