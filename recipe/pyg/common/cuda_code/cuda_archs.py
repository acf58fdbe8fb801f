"""Reads from a library's fatbins the GPUs it has code for, without CUDA's tools or a GPU.

nvcc puts a fatbin per translation unit into the section ``.nv_fatbin``. ``__nv_relfatbin`` has relocatable code, which
cannot run; the code linked from it is in ``.nv_fatbin``. A fatbin is a header (magic, version, header size, payload
size) and entries, each with a kind (1 PTX, 2 machine code, 8 LTO-IR), the size of its header and payload, and the
architecture. Payloads may be compressed (LZ4 or zstd); headers never are. Checked against cuobjdump for CUDA 13.0 with
every compression mode.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from cuda_code.elf_file import ElfFile

SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_MAGIC = struct.pack("<I", 0xBA55ED50)
_FATBIN = struct.Struct("<4sHHQ")
_ENTRY = struct.Struct("<HHIQ")
# kinds of entries
PTX = 1
MACHINE_CODE = 2
LTO_IR = 8
_PREFIXES = {MACHINE_CODE: "sm", PTX: "compute", LTO_IR: "lto"}
#: GPUs of Jetson and Drive. Their machine code and that of desktop GPUs are incompatible (CUDA C++ Programming Guide,
#: "Binary Compatibility"), but some drivers accept desktop code.
TEGRA = frozenset({53, 62, 72, 87, 101, 110})
_ALIGNED = 8
_ARCH_AT = 28
_FLAGS_AT = 40
_SMALLEST_ENTRY = 48
# sm_90a is for 9.0 only, sm_100f for all 10.x: an entry marks them by flags, not by its number
_SUFFIXES = {0x100000: "a", 0x200000: "f"}


@dataclass(frozen=True)
class Member:
    """One entry of a fatbin: kind, architecture (``90a``), and bytes in the file including its header."""

    kind: int
    arch: str
    size: int

    @property
    def name(self) -> str:
        """``sm_90a``, ``compute_120`` or ``lto_75``; ``kind16_90`` for an unknown kind."""
        return f"{_PREFIXES.get(self.kind, f'kind{self.kind}')}_{self.arch}"


@dataclass(frozen=True)
class Fatbin:
    """A fatbin, the device code of one translation unit: its start and end offsets in the data, and its entries."""

    start: int
    end: int
    members: tuple[Member, ...]

    @cached_property
    def sm(self) -> frozenset[str]:
        """Names of its machine code: ``sm_90``."""
        return frozenset(member.name for member in self.members if member.kind == MACHINE_CODE)

    @cached_property
    def ptx(self) -> frozenset[str]:
        """Names of its PTX: ``compute_120``."""
        return frozenset(member.name for member in self.members if member.kind == PTX)


def units(library: ElfFile) -> tuple[Fatbin, ...]:
    """Return the device code of each translation unit of a library; empty without device code.

    Raises ValueError: The section contains something other than fatbins.
    """
    return fatbins(library.content(SECTIONS[0]))


def fatbins(data: bytes) -> tuple[Fatbin, ...]:
    """Read consecutive fatbins.

    Raises ValueError: A fatbin is truncated, or an entry has an unknown form.
    """
    parsed = []
    position = 0
    while position + _FATBIN.size <= len(data):
        if not data.startswith(_MAGIC, position):
            if any(data[position : position + _ALIGNED]):
                raise ValueError(f"{SECTIONS[0]}: unknown data at byte {position}")
            position += _ALIGNED
            continue
        fatbin = _fatbin(data, position)
        parsed.append(fatbin)
        position = -(-fatbin.end // _ALIGNED) * _ALIGNED
    return tuple(parsed)


def anywhere(data: mmap.mmap | bytes) -> Iterator[Fatbin]:
    """Yield the fatbins of a whole file, in any section; data that only begins like a fatbin is skipped.

    cuDNN, cuBLASLt and cuSPARSELt have some fatbins in ``.cask_resource``, cuFFT nearly all in ``.ldata``.
    """
    position = 0
    while (position := data.find(_MAGIC, position)) >= 0:
        try:
            fatbin = _fatbin(data, position)
        except (ValueError, struct.error):
            position += len(_MAGIC)
            continue
        if fatbin.members:
            yield fatbin
        position = fatbin.end


def _fatbin(data: mmap.mmap | bytes, position: int) -> Fatbin:
    _, _, header, size = _FATBIN.unpack_from(data, position)
    start = position + header
    end = start + size
    if header < _FATBIN.size or end > len(data):
        raise ValueError(f"{SECTIONS[0]}: fatbin truncated at byte {position}")
    return Fatbin(position, end, tuple(_entries(data, start, end)))


def _entries(data: mmap.mmap | bytes, position: int, end: int) -> Iterator[Member]:
    while position + _SMALLEST_ENTRY <= end:
        kind, _, header, size = _ENTRY.unpack_from(data, position)
        if header < _SMALLEST_ENTRY or position + header + size > end:
            raise ValueError(f"{SECTIONS[0]}: entry of unknown form at byte {position}")
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
    """Translate architectures such as ``9.0`` and ``12.0+PTX`` into names of machine code and PTX.

    Raises ValueError: A value is no CUDA architecture.
    """
    sm = set()
    ptx = set()
    for arch in archs:
        name = arch.strip().removesuffix("+PTX")
        major, _, minor = name.partition(".")
        if not (major.isdigit() and minor.rstrip("af").isdigit()):
            raise ValueError(f"{arch}: not a CUDA architecture such as 9.0 or 12.0+PTX")
        sm.add(f"sm_{major}{minor}")
        if arch.strip().endswith("+PTX"):
            ptx.add(f"compute_{major}{minor}")
    return frozenset(sm), frozenset(ptx)


def code_for(device: str, sm: Sequence[str], ptx: Sequence[str]) -> str:
    """Return the code that a GPU would run, e.g. ``sm_120`` on an sm_121; an empty string if none fits.

    Machine code runs on GPUs with the same major number and the same or a higher minor number (CUDA C++ Programming
    Guide, "Binary Compatibility"), except :data:`TEGRA`; PTX on all newer GPUs; ``a`` code on exactly its GPU.
    """
    gpu = number(device)
    machine_code = [name for name in sm if _runs_machine_code(name, gpu)]
    compilable = [name for name in ptx if _compiles_ptx(name, gpu)]
    fitting = machine_code or compilable
    return max(fitting, key=lambda name: (number(name), name == device), default="")


def _runs_machine_code(name: str, gpu: int) -> bool:
    if number(name) == gpu:
        return True
    if name.endswith("a") or not {number(name), gpu}.isdisjoint(TEGRA):
        return False
    return _same_major(name, gpu)


def _compiles_ptx(name: str, gpu: int) -> bool:
    if number(name) == gpu:
        return True
    if name.endswith("f"):
        return _same_major(name, gpu)
    return number(name) <= gpu and not name.endswith("a")


def _same_major(name: str, gpu: int) -> bool:
    return number(name) // 10 == gpu // 10 and number(name) <= gpu


class Runs(str, Enum):
    """How a GPU runs a library's code; the values are those of JSON documents."""

    NATIVE = "native"
    PTX_ONLY = "PTX-only"  #: Compiled at first use.
    MISSING = "missing"


def runs_on(device: str, sm: Sequence[str], ptx: Sequence[str]) -> Runs:
    """Return how a GPU runs the code."""
    code = code_for(device, sm, ptx)
    if not code:
        return Runs.MISSING
    if code.startswith("compute_"):
        return Runs.PTX_ONLY
    return Runs.NATIVE
