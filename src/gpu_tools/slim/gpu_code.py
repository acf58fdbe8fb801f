"""Finds the GPU code that the user's GPUs cannot run, and the pointers that must change when it is removed.

nvcc puts a fat binary per object into ``.nv_fatbin``, and a wrapper into ``.nvFatBinSegment``. Only the wrapper has the
fat binary's address; the loader writes it. These sections are therefore compacted and the wrappers updated. If any
other reference exists, each fat binary keeps its address. In other sections (cuFFT, cuBLASLt's ``.cask_resource``) code
may know offsets inside a fat binary: it is removed only if none of its entries runs.
"""

from __future__ import annotations

import struct
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from cuda_code import cuda_archs
from cuda_code.cuda_archs import Fatbin
from cuda_code.elf_file import ElfFile, Section
from gpu_tools.slim.fat_binary import find_stand_in, slim_fatbin
from gpu_tools.slim.layout import MOST_HOLES, SMALLEST_HOLE, RangeChange, hole
from gpu_tools.slim.tables import ALLOC, DYNSYM, REL, RELA, RELR, SYMTAB, NotUnderstood, Tables

_WRAPPERS = ".nvFatBinSegment"
_WRAPPER_MAGIC = struct.pack("<I", 0x466243B1)
_RELOCATION = struct.Struct("<QQq")
_SYMBOL = struct.Struct("<IBBHQQ")
_ADDRESS = struct.Struct("<Q")
_RELATIVE = {"x86_64": 8, "aarch64": 1027}  # R_X86_64_RELATIVE, R_AARCH64_RELATIVE
# offsets of the address in a wrapper, in a relocation and in a symbol
_POINTER_AT = 8
_ADDEND_AT = 16
_VALUE_AT = 8


def find_changes(
    library: ElfFile, tables: Tables, gpus: Sequence[str], dropped: frozenset[int]
) -> tuple[list[RangeChange], frozenset[str]]:
    """Return the changes worth making, and all code in the library: ``sm_120``, ``compute_120``, ``lto_75``.

    ``dropped``: numbers of the sections that are removed entirely; their pointers need no change.
    """
    by_section = _find_fatbins(library, tables)
    all_fatbins = list(chain.from_iterable(by_section.values()))
    stand_in = find_stand_in(library.data, all_fatbins, gpus)
    cuts: list[_Cut] = []
    for index, fatbins in by_section.items():
        is_of_nvcc = tables.names[index] in cuda_archs.SECTIONS
        slimmed = []
        for fatbin in fatbins:
            pieces, runs = slim_fatbin(library.data, fatbin, gpus, stand_in)
            if runs and not is_of_nvcc:
                pieces = ((fatbin.start, fatbin.end),)
            slimmed.append(RangeChange(start=fatbin.start, end=fatbin.end, pieces=pieces))
        compacted = None
        if is_of_nvcc:
            compacted = _compact(library, tables, index, slimmed, dropped)
        if compacted:
            cuts.append(compacted)
        else:
            cuts += map(_Cut, slimmed)
    members = chain.from_iterable(fatbin.members for fatbin in all_fatbins)
    return _choose_cuts(tables, cuts), frozenset(member.name for member in members)


@dataclass(frozen=True)
class _Cut:
    """The change of a range with GPU code, and the changes of pointers that it needs."""

    code: RangeChange
    pointers: tuple[RangeChange, ...] = ()


def _choose_cuts(tables: Tables, cuts: Iterable[_Cut]) -> list[RangeChange]:
    """Return the changes of the cuts with the largest holes."""
    sized = [(_hole_size(tables, cut.code), cut) for cut in cuts]
    sized.sort(key=lambda pair: -pair[0])
    most = max(0, MOST_HOLES - len(tables.segments))
    changes: list[RangeChange] = []
    for size, cut in sized[:most]:
        if size >= SMALLEST_HOLE:
            changes += (cut.code, *cut.pointers)
    return changes


def _find_fatbins(library: ElfFile, tables: Tables) -> Mapping[int, list[Fatbin]]:
    """Return the fat binaries in each mapped section, by the section's number."""
    sections = []
    for index, section in enumerate(tables.sections):
        if section.flags & ALLOC and section.end > section.offset:
            sections.append((section.offset, section.end, index))
    sections.sort()
    fatbins: dict[int, list[Fatbin]] = defaultdict(list)
    for fatbin in cuda_archs.anywhere(library.data):
        count = bisect_right(sections, (fatbin.start, sys.maxsize))
        if count:
            _, end, index = sections[count - 1]
            if fatbin.end <= end:
                fatbins[index].append(fatbin)
    return fatbins


def _hole_size(tables: Tables, change: RangeChange) -> int:
    """Return the bytes that a change removes from the file; 0 if the range may have another use."""
    if change.end - change.filled < SMALLEST_HOLE:
        return 0
    try:
        start, end = hole(tables, change)
    except NotUnderstood:
        return 0
    return end - start


def _compact(
    library: ElfFile, tables: Tables, index: int, slimmed: Sequence[RangeChange], dropped: frozenset[int]
) -> _Cut | None:
    """Return a section with its fat binaries moved together, and its pointers; None if an unknown one may exist."""
    section = tables.sections[index]
    pointers = _find_pointers(library, tables, index, dropped)
    if pointers is None or not _is_filled(section, slimmed):
        return None
    moved: dict[int, int] = {}
    position = section.address
    for change in slimmed:
        address = section.address + change.start - section.offset
        # the statically linked CUDA runtime's fat binary has no wrapper: it is the first and must not move
        if address not in pointers.for_loader and position != address:
            return None
        moved[address] = position
        position += change.filled - change.start
    if pointers.for_loader.keys() - moved.keys():
        return None
    pieces = chain.from_iterable(change.pieces for change in slimmed)
    code = RangeChange(start=section.offset, end=section.end, pieces=tuple(pieces))
    new_pointers = []
    for before, now in moved.items():
        if before == now:
            continue
        for offset in (*pointers.for_loader.get(before, ()), *pointers.in_symbols.get(before, ())):
            end = offset + _ADDRESS.size
            new_pointers.append(RangeChange(start=offset, end=end, pieces=(_ADDRESS.pack(now),)))
    return _Cut(code, tuple(new_pointers))


def _is_filled(section: Section, changes: Sequence[RangeChange]) -> bool:
    """Return whether the changes' ranges follow each other, from a section's start to its end."""
    position = section.offset
    for change in changes:
        if change.start != position:
            return False
        position = change.end
    return position == section.end


@dataclass(frozen=True, kw_only=True)
class _Pointers:
    """File offsets of the pointers to each address in a section."""

    for_loader: Mapping[int, Sequence[int]]
    in_symbols: Mapping[int, Sequence[int]]  #: In symbol tables.


def _find_pointers(
    library: ElfFile, tables: Tables, section: int, dropped: frozenset[int]
) -> _Pointers | None:
    """Return the pointers to a section; None if the loader may use any pointer besides those in nvcc's wrappers."""
    for_loader: dict[int, list[int]] = defaultdict(list)
    in_symbols: dict[int, list[int]] = defaultdict(list)
    for index, table in enumerate(tables.sections):
        if table.kind in (REL, RELR):
            return None
        if table.kind == RELA and not _add_relocations(library, tables, section, table, for_loader):
            return None
        if table.kind in (SYMTAB, DYNSYM) and index not in dropped:
            found = _find_symbols(library, section, table)
            if found and table.kind == DYNSYM:
                return None
            for address, offset in found:
                in_symbols[address].append(offset)
    return _Pointers(for_loader=for_loader, in_symbols=in_symbols)


def _find_symbols(library: ElfFile, section: int, table: Section) -> list[tuple[int, int]]:
    """Return the addresses in a section that a symbol table has, each with the file offset of the pointer."""
    found = []
    offset = table.offset + _VALUE_AT
    for _, _, _, of_section, address, _ in _SYMBOL.iter_unpack(library.data[table.offset : table.end]):
        if of_section == section:
            found.append((address, offset))
        offset += _SYMBOL.size
    return found


def _add_relocations(
    library: ElfFile, tables: Tables, section: int, table: Section, pointers: dict[int, list[int]]
) -> bool:
    """Add the pointers to a section in a relocation table; return whether all belong to wrappers."""
    start = tables.sections[section].address
    inside = range(start, start + tables.sections[section].size)
    relative = _RELATIVE.get(library.machine)
    offset = table.offset
    for address, kind, target in _RELOCATION.iter_unpack(library.data[table.offset : table.end]):
        if target in inside:
            pointer = _find_in_wrapper(library, tables, address)
            if kind != relative or pointer is None:
                return False
            pointers[target].append(offset + _ADDEND_AT)
            if library.data[pointer : pointer + _ADDRESS.size] == _ADDRESS.pack(target):
                pointers[target].append(pointer)  # linkers also write the address into the wrapper
        offset += _RELOCATION.size
    return True


def _find_in_wrapper(library: ElfFile, tables: Tables, address: int) -> int | None:
    """Return the file offset of the wrapper's pointer at an address in memory; None if no wrapper is there."""
    for name, section in zip(tables.names, tables.sections, strict=True):
        at = section.offset + address - section.address
        if name == _WRAPPERS and section.offset < at < section.end:
            start = at - _POINTER_AT
            if library.data[start : start + len(_WRAPPER_MAGIC)] == _WRAPPER_MAGIC:
                return at
            return None
    return None
