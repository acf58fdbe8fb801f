"""A library's GPU code without what the GPUs named cannot use: which bytes go, and what has to change with them.

nvcc lays a fat binary per object into ``.nv_fatbin``, and a wrapper into ``.nvFatBinSegment``, the one thing that knows
where it is: the loader writes the address there. So these sections are compacted, and the wrappers follow. Where a
reference is found that is none of that kind, each fat binary keeps its address. Outside of these sections (cuFFT,
cuBLASLt's ``.cask_resource``) code may know where in a fat binary things lie: it only goes when nothing of it runs.
"""

from __future__ import annotations

import struct
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from cuda_code import cuda_archs
from cuda_code.cuda_archs import Fatbin
from cuda_code.elf_file import ElfFile
from gpu_tools.slim.fat_binary import code_name, find_stand_in, slim_fatbin
from gpu_tools.slim.layout import MOST_HOLES, SMALLEST_HOLE, Piece, RangeChange, hole
from gpu_tools.slim.tables import ALLOC, DYNSYM, REL, RELA, RELR, SYMTAB, X86_64, NotUnderstood, Tables

_WRAPPERS, _WRAPPER_MAGIC = ".nvFatBinSegment", struct.pack("<I", 0x466243B1)
_RELOCATION, _SYMBOL, _ADDRESS = struct.Struct("<QQq"), struct.Struct("<IBBHQQ"), struct.Struct("<Q")
_RELATIVE = {X86_64: 8, 183: 1027}  # R_X86_64_RELATIVE, R_AARCH64_RELATIVE
_POINTER_AT, _ADDEND_AT, _VALUE_AT = 8, 16, 8

Slimmer = Callable[[Fatbin], tuple[tuple[Piece, ...], bool]]


@dataclass(frozen=True, kw_only=True)
class Cut:
    """GPU code that can go: in one range of the file, with what has to change elsewhere then."""

    change: RangeChange
    elsewhere: tuple[RangeChange, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Pointers:
    """By address in a section: where in the file it stands for the loader, and where for debuggers."""

    loader: Mapping[int, list[int]]
    symbols: Mapping[int, list[int]]


def find_cuts(
    library: ElfFile, tables: Tables, gpus: Sequence[str], dropped: frozenset[int]
) -> tuple[list[Cut], frozenset[str]]:
    """Return what is worth to go, and all code that the library has: ``sm_120``, ``compute_120``, ``lto_75``.

    Dropped sections, by number, go as a whole and need no change.
    """
    cuts: list[Cut] = []
    by_section = _find_fatbins(library, tables)
    every = [*chain(*by_section.values())]
    stand_in = find_stand_in(library.data, every, gpus)

    def slim(fatbin: Fatbin) -> tuple[tuple[Piece, ...], bool]:
        return slim_fatbin(library.data, fatbin, gpus, stand_in)

    for index, fatbins in by_section.items():
        own = tables.names[index] in cuda_archs.SECTIONS
        compacted = _compact(library, tables, index, fatbins, slim, dropped) if own else None
        cuts += [compacted] if compacted else [_cut_in_place(fatbin, slim, own) for fatbin in fatbins]
    sized = sorted(((_hole_size(tables, cut.change), cut) for cut in cuts), key=lambda pair: -pair[0])
    most = max(0, MOST_HOLES - len(tables.segments))
    code = frozenset(code_name(member) for fatbin in every for member in fatbin.members)
    return [cut for size, cut in sized[:most] if size >= SMALLEST_HOLE], code


def _find_fatbins(library: ElfFile, tables: Tables) -> Mapping[int, list[Fatbin]]:
    """Return the fat binaries of every section that is mapped, by the section's number."""
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
    """Return how many bytes of the file a change lets go; none where it is not clear what else they are."""
    if change.end - change.filled < SMALLEST_HOLE:
        return 0
    try:
        start, end = hole(tables, change)
    except NotUnderstood:
        return 0
    return end - start


def _cut_in_place(fatbin: Fatbin, slim: Slimmer, own: bool) -> Cut:
    """Return what of a fat binary goes when it keeps its address."""
    pieces, runs = slim(fatbin)
    if runs and not own:
        pieces = ((fatbin.start, fatbin.end),)
    return Cut(change=RangeChange(start=fatbin.start, end=fatbin.end, pieces=pieces))


def _compact(
    library: ElfFile,
    tables: Tables,
    index: int,
    fatbins: Sequence[Fatbin],
    slim: Slimmer,
    dropped: frozenset[int],
) -> Cut | None:
    """Return a section with its fat binaries one after another; None where something unknown may point into it."""
    section = tables.sections[index]
    pointers = _find_pointers(library, tables, index, dropped)
    starts = [fatbin.start for fatbin in fatbins]
    if pointers is None or [section.offset, *(fatbin.end for fatbin in fatbins)] != [*starts, section.end]:
        return None
    every: list[Piece] = []
    moved: dict[int, int] = {}
    position = section.address
    for fatbin in fatbins:
        address = section.address + fatbin.start - section.offset
        pieces, _ = slim(fatbin)
        # the CUDA runtime's own, linked in, has no wrapper: it comes first, and stays where it is
        if address not in pointers.loader and position != address:
            return None
        moved[address] = position
        every += pieces
        position += RangeChange(start=0, end=0, pieces=pieces).filled
    if pointers.loader.keys() - moved.keys():
        return None
    return Cut(
        change=RangeChange(start=section.offset, end=section.end, pieces=tuple(every)),
        elsewhere=tuple(
            RangeChange(start=place, end=place + _ADDRESS.size, pieces=(_ADDRESS.pack(now),))
            for before, now in moved.items()
            if before != now
            for place in (*pointers.loader.get(before, ()), *pointers.symbols.get(before, ()))
        ),
    )


def _find_pointers(
    library: ElfFile, tables: Tables, section: int, dropped: frozenset[int]
) -> Pointers | None:
    """Return who points into a section; None where anything but nvcc's wrappers does, or may, for the loader."""
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
            for position, (place, kind, target) in enumerate(relocations):
                if target not in inside:
                    continue
                pointer = _find_in_wrapper(library, tables, place)
                if kind != _RELATIVE.get(tables.machine) or pointer is None:
                    return None
                loader[target].append(table.offset + position * _RELOCATION.size + _ADDEND_AT)
                if library.data[pointer : pointer + _ADDRESS.size] == _ADDRESS.pack(target):
                    loader[target].append(pointer)  # linkers write the address there, too
    return Pointers(loader=loader, symbols=symbols)


def _find_in_wrapper(library: ElfFile, tables: Tables, place: int) -> int | None:
    """Return where in the file the pointer of the wrapper lies that is at a place in memory; None if there is none."""
    for name, section in zip(tables.names, tables.sections, strict=True):
        at = section.offset + place - section.address
        if name == _WRAPPERS and section.offset < at < section.end:
            start = at - _POINTER_AT
            return at if library.data[start : start + len(_WRAPPER_MAGIC)] == _WRAPPER_MAGIC else None
    return None
