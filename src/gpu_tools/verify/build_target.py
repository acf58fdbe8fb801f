"""Reads from metadata what a package was built for: from conda dependencies, or a wheel's tags and version."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from enum import Enum, auto
from typing import Any, NamedTuple

from cuda_code.library_facts import STABLE_ABI

_LOCAL = re.compile(r"(?:\+|\.)?pt(\d)(\d+)(?:\.?(cpu|cu\d+))?$")
_CUDA = re.compile(r"cpu|cu(?:da)?(\d+)(\d)")
#: The version in a module's version.py: torchvision's and torchaudio's name CUDA there, their wheels' names do not.
_OWN_VERSION = re.compile(r"^__version__\s*(?::[^=]+)?=\s*['\"][^'\"+]*\+([^'\"]+)", re.MULTILINE)
_OTHER_LOCAL = re.compile(r"(?<![a-z])(rocm|xpu|musa|npu)(?![a-z])", re.IGNORECASE)
_LINUX = re.compile(r"linux(?:_\d+_\d+|\d+)?_(\w+)")
_EXACT_TORCH = re.compile(r"torch\s*\(?===?\s*([\d.]+)")
_BOUNDS = re.compile(r">=?(\d+)\.(\d+)[^,]*,<(\d+)\.(\d+)")
_TORCH_PACKAGES = ("pytorch", "libtorch")
_PYTHON_PACKAGES = ("python_abi", "python")
#: Processors by conda's name after ``linux-``, if they differ.
_MACHINES = {"64": "x86_64"}
CPU = "cpu"


@dataclass(frozen=True, kw_only=True)
class BuildTarget:
    """The torch, CUDA, Python and processor that metadata name."""

    source: str  #: Source of these facts, as report text.
    torch: str | None = None  #: A version or its beginning: ``2.13.0``, ``2.13``.
    later: bool = False  #: Also for every later torch; only libraries with torch's stable ABI can be.
    cuda: str | None = None  #: ``13.0``, ``cpu``, or None.
    python: str | None = None  #: ``3.12``, ``abi3`` (several versions), or None.
    machine: str = ""  #: Processor: ``x86_64``, or an empty string.
    other: str = ""  #: An accelerator that verify does not support: ``ROCm``.

    @property
    def cuda_version(self) -> str | None:
        """``13.0``; None for a CPU build, or if unknown."""
        return None if self.cuda == CPU else self.cuda


class Pin(Enum):
    """How a match spec restricts a version."""

    EXACT = auto()
    MINOR = auto()  #: ``>=2.13.0,<2.14.0a0``
    LATER = auto()
    ANY = auto()


def read_conda_index(index: Mapping[str, Any]) -> BuildTarget:
    """Read a conda package's ``index.json``, or its record in ``conda-meta``."""
    torch: dict[Pin, str] = {}
    pythons: dict[str, str] = {}
    cuda: str | None = None
    for text in index.get("depends", ()):
        name, spec, build, *_ = (*str(text).split(), "", "")
        pinned = _read_pin(spec)
        if name in _TORCH_PACKAGES:
            torch.setdefault(pinned.pin, pinned.version)
            cuda = _read_cuda(build) or cuda
        elif name in _PYTHON_PACKAGES:
            pythons[name] = _read_python(pinned, build)
    if cuda is None:
        cuda = _read_cuda(str(index.get("build", "")))
    if index.get("name") in _TORCH_PACKAGES:
        torch.setdefault(Pin.EXACT, str(index.get("version")))
    narrowest = next((pin for pin in (Pin.EXACT, Pin.MINOR, Pin.LATER) if pin in torch), Pin.ANY)
    machine = str(index.get("subdir", "")).partition("linux-")[2]
    return BuildTarget(
        source="the package's dependencies",
        torch=None if narrowest is Pin.ANY else torch[narrowest],
        later=narrowest is Pin.LATER,
        cuda=cuda,
        python=pythons.get("python_abi", pythons.get("python")),
        machine=_MACHINES.get(machine, machine),
    )


def _read_cuda(name: str) -> str | None:
    """Return the CUDA version in a build string or local version: ``13.0`` for ``cuda130_…`` or ``cu130``, or ``cpu``.

    None if it names neither.
    """
    match = _CUDA.fullmatch(name.partition("_")[0])
    if match is None:
        return None
    if not match[1]:
        return CPU
    return f"{match[1]}.{match[2]}"


class _Pinned(NamedTuple):
    pin: Pin
    version: str  #: Empty if any version fits.


def _read_pin(spec: str) -> _Pinned:
    """Return how a match spec pins a version, and which."""
    if not spec or spec.startswith(("*", "!", "<")):
        return _Pinned(Pin.ANY, "")
    first = spec.split(",")[0]
    if not spec.startswith(">"):
        return _Pinned(Pin.EXACT, re.sub(r"^[=~]=?|[.*]+$", "", first))
    bounds = _BOUNDS.match(spec)
    if bounds:
        major, minor, next_major, next_minor = map(int, bounds.groups())
        if (major, minor + 1) == (next_major, next_minor):
            return _Pinned(Pin.MINOR, f"{bounds[1]}.{bounds[2]}")
    return _Pinned(Pin.LATER, first.lstrip(">="))


def _read_python(pinned: _Pinned, build: str) -> str:
    """Return the Python that a dependency on it allows: ``3.13t``, or ``abi3`` for several versions."""
    python = STABLE_ABI
    if pinned.pin in (Pin.EXACT, Pin.MINOR):
        python = ".".join(pinned.version.split(".")[:2])
    if build.endswith("t"):
        return f"{python}t"
    return python


def read_wheel_metadata(metadata: str, wheel: str, own_version: str = "") -> BuildTarget:
    """Read ``METADATA`` and ``WHEEL`` of a wheel's ``.dist-info``, and the text of its module's ``version.py``."""
    headers = HeaderParser().parsestr(metadata)
    tags = HeaderParser().parsestr(wheel).get_all("Tag") or ()
    version = str(headers["Version"] or "")
    public, _, local = version.partition("+")
    is_torch = str(headers["Name"] or "").lower() == "torch"
    torch: str | None = None
    cuda: str | None = None
    if is_torch:
        torch = public
        cuda = _read_cuda(local)
    build = _LOCAL.search(local)  # 2.1.2+pt213cu130
    if build:
        torch = f"{build[1]}.{build[2]}"
        cuda = _read_cuda(build[3] or "")
    own = _OWN_VERSION.search(own_version)
    if own and cuda is None and not is_torch:
        cuda = _read_cuda(own[1])
    if torch is None:
        torch = _find_required_torch(headers.get_all("Requires-Dist") or ())
    return BuildTarget(
        source="the wheel's tags and version",
        torch=torch,
        cuda=cuda,
        python=_find_python(tags),
        machine=_find_machine(tags),
        other=other_accelerator(version),
    )


def _find_required_torch(requirements: Iterable[str]) -> str | None:
    for requirement in requirements:
        exact = _EXACT_TORCH.match(requirement)
        if exact:
            return exact[1].rstrip(".")
    return None


def _find_machine(tags: Iterable[str]) -> str:
    for tag in tags:
        match = _LINUX.search(tag)
        if match:
            return match[1]
    return ""


def other_accelerator(version: str) -> str:
    """Return the accelerator other than CUDA that a local version names: ``ROCm`` for ``+rocm6.4``."""
    match = _OTHER_LOCAL.search(version.partition("+")[2])
    if match is None:
        return ""
    return match[1].upper().replace("ROCM", "ROCm")


def _find_python(tags: Iterable[str]) -> str | None:
    for tag in tags:
        interpreter, abi, *_ = (*tag.split("-"), "", "")
        if abi == STABLE_ABI:
            return STABLE_ABI
        match = re.fullmatch(r"cp(\d)(\d+)", interpreter)
        if match:
            free_threaded = "t" if abi.endswith("t") else ""
            return f"{match[1]}.{match[2]}{free_threaded}"
    return None


def fits_torch(built_for: str, installed: str, *, later: bool) -> bool:
    """Return whether a build for torch ``built_for`` (``2.13``) fits ``installed`` (``2.13.0+cu130``).

    `later`: a later torch fits, too.
    """
    built = _release(built_for)
    now = _release(installed)
    is_same = all(part == other for part, other in zip(built, now, strict=False))
    return bool(now) and (is_same or (later and now >= built))


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])
