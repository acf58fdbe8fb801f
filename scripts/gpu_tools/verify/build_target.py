"""Reads from metadata what a package was built for: from conda dependencies, or a wheel's tags and version."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from typing import Any

_LOCAL = re.compile(r"(?:\+|\.)?pt(\d)(\d+)(?:\.?(cpu|cu\d+))?$")
_CUDA = re.compile(r"cpu|cu(?:da)?(\d+)(\d)")
#: The version in a module's version.py: torchvision's and torchaudio's name CUDA there, their wheels' names do not.
_OWN_VERSION = re.compile(r"^__version__\s*(?::[^=]+)?=\s*['\"][^'\"+]*\+([^'\"]+)", re.MULTILINE)
_OTHER_LOCAL = re.compile(r"(?<![a-z])(rocm|xpu|musa|npu)(?![a-z])", re.IGNORECASE)
_LINUX = re.compile(r"linux(?:_\d+_\d+|\d+)?_(\w+)")
_TORCH_PACKAGES = ("pytorch", "libtorch")


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


def read_conda_index(index: Mapping[str, Any]) -> BuildTarget:
    """Read a conda package's ``index.json``, or its record in ``conda-meta``."""
    torch: dict[str, str] = {}
    pythons: dict[str, str] = {}
    cuda: str | None = None
    for text in index.get("depends", ()):
        name, spec, build, *_ = (*str(text).split(), "", "")
        kind, version = _pinned(spec)
        if name in _TORCH_PACKAGES:
            torch.setdefault(kind, version)
            cuda = _read_cuda(build) or cuda
        elif name in ("python_abi", "python"):
            only = ".".join(version.split(".")[:2]) if kind in ("exact", "minor") else "abi3"
            pythons[name] = only + ("t" if build.endswith("t") else "")
    if cuda is None:
        cuda = _read_cuda(str(index.get("build", "")))
    if index.get("name") in _TORCH_PACKAGES:
        torch.setdefault("exact", str(index.get("version")))
    narrowest = next((kind for kind in ("exact", "minor", "later") if kind in torch), "none")
    machine = str(index.get("subdir", "")).partition("linux-")[2]
    return BuildTarget(
        source="the package's dependencies",
        torch=torch.get(narrowest),
        later=narrowest == "later",
        cuda=cuda,
        python=pythons.get("python_abi", pythons.get("python")),
        machine={"64": "x86_64"}.get(machine, machine),
    )


def _read_cuda(name: str) -> str | None:
    """Return the CUDA version in a build string or local version: ``13.0`` for ``cuda130_…`` or ``cu130``, or ``cpu``.

    None if it names neither.
    """
    match = _CUDA.fullmatch(name.partition("_")[0])
    return None if match is None else f"{match[1]}.{match[2]}" if match[1] else "cpu"


def _pinned(spec: str) -> tuple[str, str]:
    """Return how a match spec pins a version: ``exact``, ``minor`` (``>=2.13.0,<2.14.0a0``) or ``later``; and which.

    The kind is empty if the spec allows any version.
    """
    if not spec or spec.startswith(("*", "!", "<")):
        return "", ""
    if not spec.startswith(">"):
        return "exact", re.sub(r"^[=~]=?|[.*]+$", "", spec.split(",")[0])
    bounds = re.match(r">=?(\d+)\.(\d+)[^,]*,<(\d+)\.(\d+)", spec)
    if bounds and (int(bounds[1]), int(bounds[2]) + 1) == (int(bounds[3]), int(bounds[4])):
        return "minor", f"{bounds[1]}.{bounds[2]}"
    return "later", spec.split(",")[0].lstrip(">=")


def read_wheel_metadata(metadata: str, wheel: str, own_version: str = "") -> BuildTarget:
    """Read ``METADATA`` and ``WHEEL`` of a wheel's ``.dist-info``, and the text of its module's ``version.py``."""
    headers, tags = HeaderParser().parsestr(metadata), HeaderParser().parsestr(wheel).get_all("Tag") or ()
    name, version = str(headers["Name"] or "").lower(), str(headers["Version"] or "")
    public, _, local = version.partition("+")
    torch, cuda = (public, _read_cuda(local)) if name == "torch" else (None, None)
    if build := _LOCAL.search(local):  # 2.1.2+pt213cu130
        torch, cuda = f"{build[1]}.{build[2]}", _read_cuda(build[3] or "")
    if name != "torch" and cuda is None and (own := _OWN_VERSION.search(own_version)):
        cuda = _read_cuda(own[1])
    for requirement in headers.get_all("Requires-Dist") or ():
        if torch is None and (exact := re.match(r"torch\s*\(?===?\s*([\d.]+)", requirement)):
            torch = exact[1].rstrip(".")
    return BuildTarget(
        source="the wheel's tags and version",
        torch=torch,
        cuda=cuda,
        python=_from_tags(tags),
        machine=next((match[1] for tag in tags if (match := _LINUX.search(tag))), ""),
        other=other_accelerator(version),
    )


def other_accelerator(version: str) -> str:
    """Return the accelerator other than CUDA that a local version names: ``ROCm`` for ``+rocm6.4``."""
    match = _OTHER_LOCAL.search(version.partition("+")[2])
    return match[1].upper().replace("ROCM", "ROCm") if match else ""


def _from_tags(tags: Iterable[str]) -> str | None:
    for tag in tags:
        interpreter, abi, _ = (*tag.split("-"), "", "")[:3]
        if abi == "abi3":
            return "abi3"
        if match := re.fullmatch(r"cp(\d)(\d+)", interpreter):
            return f"{match[1]}.{match[2]}" + ("t" if abi.endswith("t") else "")
    return None


def fits_torch(built_for: str, installed: str, *, later: bool) -> bool:
    """Return whether a build for torch ``built_for`` (``2.13``) fits ``installed`` (``2.13.0+cu130``).

    `later`: a later torch fits, too.
    """
    built, now = _release(built_for), _release(installed)
    is_same = all(part == other for part, other in zip(built, now, strict=False))
    return bool(now) and (is_same or (later and now >= built))


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])
