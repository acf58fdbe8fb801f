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
from groundwork.names import PackageId
from megabuild.store import published
from pyg_extensions.table import EXTENSIONS

TORCH = "torch"
#: Ends the names of runs that build a scaled model of PyTorch.
_REHEARSAL = "-rehearsal"
_EXTENSIONS = {extension.conda: extension.name for extension in EXTENSIONS}
#: The projects on an index, by the names of their conda packages.
_PROJECTS = {"pytorch": TORCH, **_EXTENSIONS}
_BUILD = re.compile(
    r"(?P<accelerator>cpu|cuda\d+)_(?P<source>[a-z]+)_(?:(?:exact|stable)_)?(?:py3(?P<minor>\d+t?)|abi3)_"
)
#: exactly one version (``==2.13.0``), one minor version (``>=2.13.0,<``), or every later version (``>=2.13.0``)
_TORCH_PIN = re.compile(r"pytorch (?:(?P<exact>==)|>=)(?P<version>[\d.]+)(?P<below>,<)?")
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
    def subdir(self) -> str:
        """The platform that it is for: ``linux-64``."""
        return self.path.parent.name

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
        if self.official:
            return f"{TORCH}=={self.torch}"
        return f"{TORCH}=={self.torch}+{self.accelerator}"

    @property
    def requires(self) -> tuple[str, ...]:
        """The wheel's requirements in addition to upstream's metadata."""
        if self.project == TORCH:
            return self.more
        return (self.torch_pin, *self.more)


def find(channel: Path, pythons: Sequence[str], names: Sequence[str]) -> tuple[BuiltPackage, ...]:
    """Return a channel's packages for wheels, PyTorch first, and only the latest build of each.

    The channel is named like its run: ``linux_64_cpu_debian``, ``linux_64_cpu-rehearsal``. ``pythons`` and ``names``
    (projects or conda packages) select some of them; empty means all.

    Raises ConfigError: The channel has nothing that can become a wheel.
    Raises IntegrityError: A package is missing, or damaged since it was published.
    Raises UsageError: It has nothing for these Pythons, or no package with one of the names.
    """
    candidates = _candidates(channel)
    fitting = _for_pythons(candidates, pythons)
    projects = {canonicalize_name(package.project) for package in fitting}
    requested = {canonicalize_name(_PROJECTS.get(name, name)) for name in names} or projects
    lacking = sorted(requested - projects)
    if lacking or not projects:
        message = f"{channel.name} has no {', '.join(lacking) or 'package'}"
        if pythons:
            message += f" for Python {', '.join(pythons)}"
        choices = sorted(projects) or _pythons(candidates)
        raise UsageError(message, f"choose from {', '.join(choices)}")
    return tuple(package for package in fitting if canonicalize_name(package.project) in requested)


def _for_pythons(packages: Sequence[BuiltPackage], pythons: Sequence[str]) -> Sequence[BuiltPackage]:
    if not pythons:
        return packages
    return [package for package in packages if package.python in (None, *pythons)]


def _pythons(packages: Iterable[BuiltPackage]) -> list[str]:
    return list(dict.fromkeys(package.python for package in packages if package.python))


def build_command(run_name: str) -> str:
    """Return the command that builds a run's packages, by the run's name: the config's, with a PyTorch or a mark."""
    config, _, torch = run_name.removesuffix(_REHEARSAL).partition("-")
    command = f"python3 build-locally.py {config}"
    if torch:
        command += f" --torch {torch}"
    if run_name.endswith(_REHEARSAL):
        command += " --rehearse"
    return command


def _candidates(channel: Path) -> list[BuiltPackage]:
    """Return a channel's packages that can become wheels, as :func:`find` does; raises ConfigError."""
    read = [_read(channel, record) for record in published.records(channel).values()]
    # upstream's own wheel is on upstream's index already
    candidates = [package for package in _newest(read) if package.project != TORCH or not package.official]
    if not candidates:
        raise ConfigError(
            f"{channel.name} has nothing for a wheel: neither extensions nor a PyTorch compiled by megabuild",
            f"build extensions: {build_command(channel.name.removesuffix(_REHEARSAL))} --pyg source; or install "
            "the conda packages: python3 scripts/megabuild env create",
        )
    return candidates


@dataclass(frozen=True, kw_only=True)
class _TorchPin:
    version: str
    later: bool  #: allows every later version


def _read(channel: Path, record: published.PublishedPackage) -> BuiltPackage | None:
    """Return the package of a record, or None if it is neither PyTorch nor an extension."""
    path = channel / record.path
    name, version, build = PackageId.of_file(path.name)
    parts = _BUILD.match(build)
    if name not in _PROJECTS or parts is None:
        return None
    depends = _read_depends(path)
    pin = _torch_pin(depends) or _TorchPin(version=version, later=False)
    accelerator = parts["accelerator"].replace("cuda", "cu")
    if channel.name.endswith(_REHEARSAL):
        accelerator += ".rehearsal"
    return BuiltPackage(
        project=_PROJECTS[name],
        version=version,
        python=_python(parts["minor"]),
        path=path,
        sha256=record.sha256,
        build_string=build,
        accelerator=accelerator,
        official=parts["source"] == "wheel",
        torch=pin.version,
        later=pin.later,
        cuda=_cuda(parts["accelerator"]),
        more=_further_requirements(depends),
    )


def _read_depends(path: Path) -> list[str]:
    """Return a package's requirements; raises IntegrityError if it is damaged since it was published."""
    try:
        return IndexJson.from_package_archive(path).depends
    except ExtractError:
        published.check(path)
        raise


def _torch_pin(depends: Iterable[str]) -> _TorchPin | None:
    pins = list(filter(None, map(_TORCH_PIN.match, depends)))
    if not pins:
        return None
    is_limited = any(pin["exact"] or pin["below"] for pin in pins)
    return _TorchPin(version=pins[0]["version"], later=not is_limited)


def _python(minor: str | None) -> str | None:
    if minor is None:
        return None
    return f"3.{minor}"


def _cuda(accelerator: str) -> str | None:
    """Return the version of ``cuda124``: 12.4."""
    digits = accelerator.removeprefix("cuda")
    if not digits.isdigit():
        return None
    return f"{digits[:-1]}.{digits[-1]}"


def _further_requirements(depends: Iterable[str]) -> tuple[str, ...]:
    """Return the other extensions and the Triton that a package requires, as wheels do."""
    extensions: set[str] = set()
    tritons: list[str] = []
    for spec in depends:
        name = spec.split()[0]
        if name in _EXTENSIONS:
            extensions.add(_EXTENSIONS[name])
        if triton := _TRITON.match(spec):
            tritons.append(f"triton{triton[1]}{triton[2]}")
    return (*sorted(extensions), *tritons)


def _newest(packages: Iterable[BuiltPackage | None]) -> list[BuiltPackage]:
    chosen: dict[tuple[str, str | None], BuiltPackage] = {}
    for package in sorted(filter(None, packages), key=lambda package: package.path.stat().st_mtime):
        chosen[package.project, package.python] = package
    return sorted(chosen.values(), key=_pytorch_first)


def _pytorch_first(package: BuiltPackage) -> tuple[bool, str, int, str]:
    python = package.python or "3.0"
    minor = python.partition(".")[2]
    return package.project != TORCH, package.project, int(minor.rstrip("t")), python
