"""Which GPUs a library holds machine code for, read from its fatbins without CUDA's tools or a GPU.

nvcc lays a fatbin per translation unit into the section ``.nv_fatbin``. (``__nv_relfatbin`` holds relocatable code,
which cannot run: what was linked from it lies in ``.nv_fatbin`` again.) A fatbin is a header (magic, version, header
size, payload size) and entries, each with a kind (1 PTX, 2 machine code), the size of its header and payload, and the
architecture. Payloads may be compressed (LZ4 or zstd); headers never are. Checked against cuobjdump for CUDA 13.0 with
every compression mode.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from elf_file import ElfFile

_SECTION = ".nv_fatbin"
_MAGIC = 0xBA55ED50
_FATBIN = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQ")
_PTX, _MACHINE_CODE = 1, 2
_ALIGNED = 8
_ARCH_AT, _FLAGS_AT, _SMALLEST_ENTRY = 28, 40, 48
# sm_90a is for 9.0 only; sm_100f for the family of 10.x: told apart by flags, not by number.
_SUFFIXES = {0x100000: "a", 0x200000: "f"}


@dataclass(frozen=True)
class Unit:
    """The device code of one translation unit: ``sm_90`` … in ``sm``, ``compute_120`` … in ``ptx``."""

    sm: frozenset[str]
    ptx: frozenset[str]


def units(library: ElfFile) -> tuple[Unit, ...]:
    """Return what each translation unit of a library holds; none for a library without device code.

    Raises
    ------
    ValueError
        The section holds something that is no fatbin.
    """
    return fatbins(library.content(_SECTION))


def fatbins(data: bytes) -> tuple[Unit, ...]:
    """Read one fatbin after another.

    Raises
    ------
    ValueError
        A fatbin is cut off, or entries are of a form not known here.
    """
    found, position = [], 0
    while position + _FATBIN.size <= len(data):
        magic, _, header, size = _FATBIN.unpack_from(data, position)
        if magic != _MAGIC:
            if any(data[position : position + _ALIGNED]):
                raise ValueError(f"{_SECTION} holds something unknown at byte {position}")
            position += _ALIGNED
            continue
        start, end = position + header, position + header + size
        if end > len(data):
            raise ValueError(f"{_SECTION} is cut off at byte {position}")
        entries = list(_entries(data, start, end))
        found.append(
            Unit(
                sm=frozenset(f"sm_{arch}" for kind, arch in entries if kind == _MACHINE_CODE),
                ptx=frozenset(f"compute_{arch}" for kind, arch in entries if kind == _PTX),
            )
        )
        position = -(-end // _ALIGNED) * _ALIGNED
    return tuple(found)


def _entries(data: bytes, position: int, end: int) -> Iterator[tuple[int, str]]:
    while position + _SMALLEST_ENTRY <= end:
        kind, _, header, size = _ENTRY.unpack_from(data, position)
        if header < _SMALLEST_ENTRY or position + header + size > end:
            raise ValueError(f"{_SECTION} has an entry of unknown form at byte {position}")
        (arch,) = struct.unpack_from("<I", data, position + _ARCH_AT)
        (flags,) = struct.unpack_from("<Q", data, position + _FLAGS_AT)
        suffix = next((letter for bit, letter in _SUFFIXES.items() if flags & bit), "")
        yield kind, f"{arch}{suffix}"
        position += header + size


def ordered(names: Sequence[str] | frozenset[str]) -> tuple[str, ...]:
    """Sort ``sm_90``, ``sm_120``, ``sm_90a`` by number."""
    return tuple(sorted(names, key=lambda name: (number(name), name)))


def number(name: str) -> int:
    """Return 120 for ``sm_120``, ``compute_120`` and ``sm_120f``."""
    return int(name.rpartition("_")[2].rstrip("af"))


def wanted(archs: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Translate ``9.0``, ``12.0+PTX`` into the machine code and the PTX that they stand for.

    Raises
    ------
    ValueError
        Something else was given.
    """
    sm, ptx = set(), set()
    for arch in archs:
        name = arch.strip().removesuffix("+PTX")
        major, _, minor = name.partition(".")
        if not (major.isdigit() and minor.rstrip("af").isdigit()):
            raise ValueError(f"{arch} is no CUDA architecture such as 9.0 or 12.0+PTX")
        sm.add(f"sm_{major}{minor}")
        if arch.strip().endswith("+PTX"):
            ptx.add(f"compute_{major}{minor}")
    return frozenset(sm), frozenset(ptx)


def runs_on(device: str, sm: Sequence[str], ptx: Sequence[str]) -> str:
    """Say how code runs on a GPU: ``native``, ``PTX-only`` (compiled at first use) or ``missing``.

    Parameters
    ----------
    device:
        The GPU's architecture, such as ``sm_89``.
    sm, ptx:
        What a library holds. Machine code runs on GPUs of the same major number and the same or a higher minor
        number (CUDA C++ Programming Guide, "Binary Compatibility"), PTX on everything newer; ``a`` on its own only.
    """
    gpu = number(device)
    for name in sm:
        code = number(name)
        if code == gpu or (not name.endswith("a") and code // 10 == gpu // 10 and code <= gpu):
            return "native"
    for name in ptx:
        code = number(name)
        if code == gpu or (code <= gpu and not name.endswith(("a", "f"))):
            return "PTX-only"
        if name.endswith("f") and code // 10 == gpu // 10 and code <= gpu:
            return "PTX-only"
    return "missing"
