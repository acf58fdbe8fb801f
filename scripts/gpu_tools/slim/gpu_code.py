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
from gpu_tools.slim import fat_binary, pointers
from gpu_tools.slim.fat_binary import CodeFilter, FatbinContent
from gpu_tools.slim.layout import MOST_HOLES, SMALLEST_HOLE, Piece, RangeChange, hole
from gpu_tools.slim.tables import ALLOC, NotUnderstood, Tables

_ADDRESS = struct.Struct("<Q")


@dataclass(frozen=True, kw_only=True)
class Cut:
    """GPU code that can go: in one range of the file, with what has to change elsewhere then."""

    change: RangeChange
    elsewhere: tuple[RangeChange, ...] = ()
    #: The code in it afterwards, and now.
    kept: frozenset[str]
    whole: frozenset[str]
    is_compacted: bool = False


def cuts(
    library: ElfFile, tables: Tables, wanted: CodeFilter, dropped: frozenset[int]
) -> tuple[list[Cut], frozenset[str], frozenset[str]]:
    """Return what is worth to go, the code that the library has when all of that is gone, and what it has now.

    Dropped sections, by number, go as a whole and need no change.
    """
    possible: list[Cut] = []
    found = _by_section(library, tables)
    stand_in = fat_binary.smallest_for_others(library.data, chain(*found.values()), wanted.gpus)

    def slimmed(fatbin: Fatbin) -> FatbinContent:
        return fat_binary.slimmed(library.data, fatbin, wanted, stand_in)

    for index, fatbins in found.items():
        own = tables.names[index] in cuda_archs.SECTIONS
        compacted = _compacted(library, tables, index, fatbins, slimmed, dropped) if own else None
        possible += [compacted] if compacted else [_in_place(one, slimmed, own) for one in fatbins]
    sized = sorted(
        ((_hole_size(tables, cut.change), cut) for cut in possible), key=lambda one: one[0], reverse=True
    )
    most = max(0, MOST_HOLES - len(tables.segments))
    done = [cut for size, cut in sized[:most] if size >= SMALLEST_HOLE]
    left = [cut for _, cut in sized[len(done) :]]
    kept = frozenset(chain(*(cut.kept for cut in done), *(cut.whole for cut in left)))
    return done, kept, frozenset(chain(*(cut.whole for cut in possible)))


def _by_section(library: ElfFile, tables: Tables) -> Mapping[int, list[Fatbin]]:
    """Return the fat binaries of every section that is mapped, by the section's number."""
    sections = sorted(
        (section.offset, section.end, index)
        for index, section in enumerate(tables.sections)
        if section.flags & ALLOC and section.end > section.offset
    )
    found: dict[int, list[Fatbin]] = defaultdict(list)
    for fatbin in cuda_archs.anywhere(library.data):
        at = bisect_right(sections, (fatbin.start, sys.maxsize)) - 1
        if at >= 0 and fatbin.end <= sections[at][1]:
            found[sections[at][2]].append(fatbin)
    return found


def _hole_size(tables: Tables, change: RangeChange) -> int:
    """Return how many bytes of the file a change lets go; none where it is not clear what else they are."""
    if change.end - change.filled < SMALLEST_HOLE:
        return 0
    try:
        start, end = hole(tables, change)
    except NotUnderstood:
        return 0
    return end - start


def _in_place(fatbin: Fatbin, slimmed: Callable[[Fatbin], FatbinContent], own: bool) -> Cut:
    """Return what of a fat binary goes when it keeps its address."""
    whole, content = fat_binary.whole(fatbin), slimmed(fatbin)
    if content.code and not own:
        content = whole
    change = RangeChange(start=fatbin.start, end=fatbin.end, pieces=content.pieces)
    return Cut(change=change, kept=content.code, whole=whole.code)


def _compacted(
    library: ElfFile,
    tables: Tables,
    index: int,
    fatbins: Sequence[Fatbin],
    slimmed: Callable[[Fatbin], FatbinContent],
    dropped: frozenset[int],
) -> Cut | None:
    """Return a section with its fat binaries one after another; None where something unknown may point into it."""
    section = tables.sections[index]
    known = pointers.into(library, tables, index, dropped)
    starts = [fatbin.start for fatbin in fatbins]
    if known is None or [section.offset, *(one.end for one in fatbins)] != [*starts, section.end]:
        return None
    pieces: list[Piece] = []
    code: set[str] = set()
    moved: dict[int, int] = {}
    position = section.address
    for fatbin in fatbins:
        address = section.address + fatbin.start - section.offset
        content = slimmed(fatbin)
        # the CUDA runtime's own, linked in, has no wrapper: it comes first, and stays where it is
        if address not in known.loader and position != address:
            return None
        moved[address] = position
        pieces += content.pieces
        code |= content.code
        position += RangeChange(start=0, end=0, pieces=content.pieces).filled
    if known.loader.keys() - moved.keys():
        return None
    moves = [(before, now) for before, now in moved.items() if before != now]
    return Cut(
        change=RangeChange(start=section.offset, end=section.end, pieces=tuple(pieces)),
        elsewhere=tuple(
            RangeChange(start=place, end=place + _ADDRESS.size, pieces=(_ADDRESS.pack(now),))
            for before, now in moves
            for place in (*known.loader.get(before, ()), *known.symbols.get(before, ()))
        ),
        kept=frozenset(code),
        whole=frozenset(chain(*(fat_binary.whole(fatbin).code for fatbin in fatbins))),
        is_compacted=True,
    )
