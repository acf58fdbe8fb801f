"""Which GPUs a library holds machine code for, read from its fatbins without CUDA's tools or a GPU.

nvcc lays a fatbin per translation unit into the section ``.nv_fatbin``. (``__nv_relfatbin`` holds relocatable code,
which cannot run: what was linked from it lies in ``.nv_fatbin`` again.) A fatbin is a header (magic, version, header
size, payload size) and entries, each with a kind (1 PTX, 2 machine code, 8 LTO-IR), the size of its header and
payload, and the architecture. Payloads may be compressed (LZ4 or zstd); headers never are. Checked against cuobjdump
for CUDA 13.0 with every compression mode.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cuda_code.elf_file import ElfFile

SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_MAGIC = struct.pack("<I", 0xBA55ED50)
_FATBIN = struct.Struct("<4sHHQ")
_ENTRY = struct.Struct("<HHIQ")
PTX, MACHINE_CODE, LTO_IR = 1, 2, 8
#: GPUs of Jetson and Drive. Their machine code runs on no other GPU, and they run none of a desktop GPU (CUDA C++
#: Programming Guide, "Binary Compatibility"); whether a driver accepts it all the same has changed.
TEGRA = frozenset({53, 62, 72, 87, 101, 110})
_ALIGNED = 8
_ARCH_AT, _FLAGS_AT, _SMALLEST_ENTRY = 28, 40, 48
# sm_90a is for 9.0 only; sm_100f for the family of 10.x: told apart by flags, not by number.
_SUFFIXES = {0x100000: "a", 0x200000: "f"}


@dataclass(frozen=True)
class Unit:
    """The device code of one translation unit: ``sm_90`` … in ``sm``, ``compute_120`` … in ``ptx``."""

    sm: frozenset[str]
    ptx: frozenset[str]


@dataclass(frozen=True)
class Member:
    """One entry of a fatbin: the architecture, such as ``90a``, and its bytes with their header, as they lie there."""

    kind: int
    arch: str
    size: int


@dataclass(frozen=True)
class Fatbin:
    """A fatbin: where it begins and ends in the data, and its entries."""

    start: int
    end: int
    members: tuple[Member, ...]


def units(library: ElfFile) -> tuple[Unit, ...]:
    """Return what each translation unit of a library holds; none for a library without device code.

    Raises ValueError: The section holds something that is no fatbin.
    """
    return fatbins(library.content(SECTIONS[0]))


def fatbins(data: bytes) -> tuple[Unit, ...]:
    """Read one fatbin after another.

    Raises ValueError: A fatbin is cut off, or entries are of a form not known here.
    """
    found, position = [], 0
    while position + _FATBIN.size <= len(data):
        if not data.startswith(_MAGIC, position):
            if any(data[position : position + _ALIGNED]):
                raise ValueError(f"{SECTIONS[0]} holds something unknown at byte {position}")
            position += _ALIGNED
            continue
        fatbin = _fatbin(data, position)
        found.append(
            Unit(
                sm=frozenset(f"sm_{member.arch}" for member in fatbin.members if member.kind == MACHINE_CODE),
                ptx=frozenset(f"compute_{member.arch}" for member in fatbin.members if member.kind == PTX),
            )
        )
        position = -(-fatbin.end // _ALIGNED) * _ALIGNED
    return tuple(found)


def anywhere(data: mmap.mmap | bytes) -> Iterator[Fatbin]:
    """Return every fatbin of a file, in whatever section, one after another; what only begins like one is passed over.

    cuDNN, cuBLASLt and cuSPARSELt keep part of theirs in ``.cask_resource``, cuFFT nearly all in ``.ldata``.
    """
    position = 0
    while (position := data.find(_MAGIC, position)) >= 0:
        try:
            found = _fatbin(data, position)
        except (ValueError, struct.error):
            position += len(_MAGIC)
            continue
        if found.members:
            yield found
        position = found.end


def _fatbin(data: mmap.mmap | bytes, position: int) -> Fatbin:
    _, _, header, size = _FATBIN.unpack_from(data, position)
    start, end = position + header, position + header + size
    if header < _FATBIN.size or end > len(data):
        raise ValueError(f"{SECTIONS[0]} is cut off at byte {position}")
    return Fatbin(position, end, tuple(_entries(data, start, end)))


def _entries(data: mmap.mmap | bytes, position: int, end: int) -> Iterator[Member]:
    while position + _SMALLEST_ENTRY <= end:
        kind, _, header, size = _ENTRY.unpack_from(data, position)
        if header < _SMALLEST_ENTRY or position + header + size > end:
            raise ValueError(f"{SECTIONS[0]} has an entry of unknown form at byte {position}")
        (arch,) = struct.unpack_from("<I", data, position + _ARCH_AT)
        (flags,) = struct.unpack_from("<Q", data, position + _FLAGS_AT)
        suffix = next((letter for bit, letter in _SUFFIXES.items() if flags & bit), "")
        yield Member(kind, f"{arch}{suffix}", header + size)
        position += header + size


def ordered(names: Sequence[str] | frozenset[str]) -> tuple[str, ...]:
    """Sort ``sm_90``, ``sm_120``, ``sm_90a`` by number."""
    return tuple(sorted(names, key=lambda name: (number(name), name)))


def number(name: str) -> int:
    """Return 120 for ``sm_120``, ``compute_120`` and ``sm_120f``."""
    return int(name.rpartition("_")[2].rstrip("af"))


def wanted(archs: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Translate ``9.0``, ``12.0+PTX`` into the machine code and the PTX that they stand for.

    Raises ValueError: Something else was given.
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


def code_for(device: str, sm: Sequence[str], ptx: Sequence[str]) -> str:
    """Return the code of a library that a GPU runs, ``sm_120`` for an sm_121; an empty string for none.

    Machine code runs on GPUs of the same major number and the same or a higher minor number (CUDA C++ Programming
    Guide, "Binary Compatibility"), but see :data:`TEGRA`; PTX on everything newer; ``a`` on its own only.
    """
    gpu = number(device)
    machine_code = [
        name
        for name in sm
        if number(name) == gpu
        or (not name.endswith("a") and _same_major(name, gpu) and not {number(name), gpu} & TEGRA)
    ]
    compilable = [
        name
        for name in ptx
        if number(name) == gpu
        or (number(name) <= gpu and not name.endswith(("a", "f")))
        or (name.endswith("f") and _same_major(name, gpu))
    ]
    for names in (machine_code, compilable):
        if names:
            return max(names, key=lambda name: (number(name), name == device))
    return ""


def _same_major(name: str, gpu: int) -> bool:
    return number(name) // 10 == gpu // 10 and number(name) <= gpu


def runs_on(device: str, sm: Sequence[str], ptx: Sequence[str]) -> str:
    """Say how code runs on a GPU: ``native``, ``PTX-only`` (compiled at first use) or ``missing``."""
    code = code_for(device, sm, ptx)
    return "missing" if not code else "PTX-only" if code.startswith("compute_") else "native"
