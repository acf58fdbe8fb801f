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
from collections.abc import Mapping, Sequence
from itertools import chain

from cuda_code import cuda_archs
from cuda_code.cuda_archs import Fatbin
from cuda_code.elf_file import ElfFile
from gpu_tools.slim.fat_binary import find_stand_in, slim_fatbin
from gpu_tools.slim.layout import MOST_HOLES, SMALLEST_HOLE, RangeChange, hole
from gpu_tools.slim.tables import ALLOC, DYNSYM, REL, RELA, RELR, SYMTAB, NotUnderstood, Tables

_WRAPPERS, _WRAPPER_MAGIC = ".nvFatBinSegment", struct.pack("<I", 0x466243B1)
_RELOCATION, _SYMBOL, _ADDRESS = struct.Struct("<QQq"), struct.Struct("<IBBHQQ"), struct.Struct("<Q")
_RELATIVE = {"x86_64": 8, "aarch64": 1027}  # R_X86_64_RELATIVE, R_AARCH64_RELATIVE
_POINTER_AT, _ADDEND_AT, _VALUE_AT = 8, 16, 8


def find_changes(
    library: ElfFile, tables: Tables, gpus: Sequence[str], dropped: frozenset[int]
) -> tuple[list[RangeChange], frozenset[str]]:
    """Return the changes worth making, and all code in the library: ``sm_120``, ``compute_120``, ``lto_75``.

    ``dropped``: numbers of the sections that are removed entirely; their pointers need no change.
    """
    # each the change of a range with GPU code, and the changes of pointers that it needs
    cuts: list[tuple[RangeChange, ...]] = []
    by_section = _find_fatbins(library, tables)
    all_fatbins = [*chain(*by_section.values())]
    stand_in = find_stand_in(library.data, all_fatbins, gpus)
    for index, fatbins in by_section.items():
        own = tables.names[index] in cuda_archs.SECTIONS
        slimmed = []
        for fatbin in fatbins:
            pieces, runs = slim_fatbin(library.data, fatbin, gpus, stand_in)
            if runs and not own:
                pieces = ((fatbin.start, fatbin.end),)
            slimmed.append(RangeChange(start=fatbin.start, end=fatbin.end, pieces=pieces))
        compacted = _compact(library, tables, index, slimmed, dropped) if own else ()
        cuts += [compacted] if compacted else [(change,) for change in slimmed]
    sized = sorted(((_hole_size(tables, cut[0]), cut) for cut in cuts), key=lambda pair: -pair[0])
    most = max(0, MOST_HOLES - len(tables.segments))
    code = frozenset(member.name for fatbin in all_fatbins for member in fatbin.members)
    worth = (cut for size, cut in sized[:most] if size >= SMALLEST_HOLE)
    return [*chain.from_iterable(worth)], code


def _find_fatbins(library: ElfFile, tables: Tables) -> Mapping[int, list[Fatbin]]:
    """Return the fat binaries in each mapped section, by the section's number."""
    sections = sorted(
        (section.offset, section.end, index)
        for index, section in enumerate(tables.sections)
        if section.flags & ALLOC and section.end > section.offset
    )
    fatbins: dict[int, list[Fatbin]] = defaultdict(list)
    for fatbin in cuda_archs.anywhere(library.data):
        at = bisect_right(sections, (fatbin.start, sys.maxsize)) - 1
        if at >= 0 and fatbin.end <= sections[at][1]:
            fatbins[sections[at][2]].append(fatbin)
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
) -> tuple[RangeChange, ...]:
    """Return a section with its fat binaries moved together, and its pointers; none if an unknown one may exist."""
    section = tables.sections[index]
    pointers = _find_pointers(library, tables, index, dropped)
    starts = [change.start for change in slimmed]
    if pointers is None or [section.offset, *(change.end for change in slimmed)] != [*starts, section.end]:
        return ()
    for_loader, in_symbols = pointers
    moved: dict[int, int] = {}
    position = section.address
    for change in slimmed:
        address = section.address + change.start - section.offset
        # the statically linked CUDA runtime's fat binary has no wrapper: it is the first and must not move
        if address not in for_loader and position != address:
            return ()
        moved[address] = position
        position += change.filled - change.start
    if for_loader.keys() - moved.keys():
        return ()
    pieces = chain.from_iterable(change.pieces for change in slimmed)
    return (
        RangeChange(start=section.offset, end=section.end, pieces=tuple(pieces)),
        *(
            RangeChange(start=offset, end=offset + _ADDRESS.size, pieces=(_ADDRESS.pack(now),))
            for before, now in moved.items()
            if before != now
            for offset in (*for_loader.get(before, ()), *in_symbols.get(before, ()))
        ),
    )


def _find_pointers(
    library: ElfFile, tables: Tables, section: int, dropped: frozenset[int]
) -> tuple[Mapping[int, list[int]], Mapping[int, list[int]]] | None:
    """Return the file offsets of the pointers to each address in a section: for the loader, and in symbol tables.

    None if the loader may use any pointer besides those in nvcc's wrappers.
    """
    loader: dict[int, list[int]] = defaultdict(list)
    symbols: dict[int, list[int]] = defaultdict(list)
    start = tables.sections[section].address
    inside = range(start, start + tables.sections[section].size)
    for index, table in enumerate(tables.sections):
        if table.kind in (REL, RELR):
            return None
        if table.kind in (SYMTAB, DYNSYM) and index not in dropped:
            for position, symbol in enumerate(_SYMBOL.iter_unpack(library.data[table.offset : table.end])):
                if symbol[3] != section:
                    continue
                if table.kind == DYNSYM:
                    return None
                symbols[symbol[4]].append(table.offset + position * _SYMBOL.size + _VALUE_AT)
        if table.kind == RELA:
            relocations = _RELOCATION.iter_unpack(library.data[table.offset : table.end])
            for position, (address, kind, target) in enumerate(relocations):
                if target not in inside:
                    continue
                pointer = _find_in_wrapper(library, tables, address)
                if kind != _RELATIVE.get(library.machine) or pointer is None:
                    return None
                loader[target].append(table.offset + position * _RELOCATION.size + _ADDEND_AT)
                if library.data[pointer : pointer + _ADDRESS.size] == _ADDRESS.pack(target):
                    loader[target].append(pointer)  # linkers also write the address into the wrapper
    return loader, symbols


def _find_in_wrapper(library: ElfFile, tables: Tables, address: int) -> int | None:
    """Return the file offset of the wrapper's pointer at an address in memory; None if no wrapper is there."""
    for name, section in zip(tables.names, tables.sections, strict=True):
        at = section.offset + address - section.address
        if name == _WRAPPERS and section.offset < at < section.end:
            start = at - _POINTER_AT
            return at if library.data[start : start + len(_WRAPPER_MAGIC)] == _WRAPPER_MAGIC else None
    return None
