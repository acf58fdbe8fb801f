"""Where everything lies in a library after ranges of it have lost their content: addresses stay, pages leave the file.

What was mapped in one piece is mapped around each hole, by more program headers, and the hole reads as zeros. The table
of program headers grows by that, and moves to the file's end: the loader copies it where it is not mapped (glibc's
``_dl_map_object_from_fd``).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import IO

from cuda_code.elf_file import ElfFile
from gpu_tools.slim import tables as elf
from gpu_tools.slim.tables import LOAD, NULL, NotUnderstood, SectionHeader, Segment, Tables

#: The loader holds all program headers on its stack (100 bytes each), in whatever thread, and maps each on its own: a
#: process has 65,530 mappings for all its libraries (vm.max_map_count).
MOST_HOLES = 512
#: Below that a hole is not worth two mappings.
SMALLEST_HOLE = 0x4000
_NOT_MAPPED_ALIGNMENT = 16

#: Literal bytes, or a range of the file as it was.
Piece = bytes | tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class RangeChange:
    """A range of the file, and what lies at its beginning afterwards: the rest is empty."""

    start: int
    end: int
    pieces: tuple[Piece, ...] = ()

    @property
    def filled(self) -> int:
        """Where its content ends."""
        lengths = (len(piece) if isinstance(piece, bytes) else piece[1] - piece[0] for piece in self.pieces)
        return self.start + sum(lengths)


def hole(tables: Tables, change: RangeChange) -> tuple[int, int]:
    """Return which bytes of the former file a change lets go; an empty range where that is none.

    Raises NotUnderstood: The range has more than one meaning.
    """
    if tables.mapped_by(change.start, change.end):
        start = -(-change.filled // tables.page) * tables.page
        return start, max(start, change.end // tables.page * tables.page)
    later = any(segment.end > change.start for segment in tables.loaded)
    step = tables.page if later else _NOT_MAPPED_ALIGNMENT
    return change.filled, change.filled + (change.end - change.filled) // step * step


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A library as it is to be written: what changes, in order, each with how many bytes it lets go."""

    before: int
    changes: tuple[tuple[RangeChange, int], ...]
    #: What stands behind everything else.
    tail: bytes

    @property
    def after(self) -> int:
        """Bytes of the file that is to be written."""
        return self.before - sum(gone for _, gone in self.changes) + len(self.tail)

    def write(self, library: ElfFile, stream: IO[bytes]) -> None:
        """Write the library."""
        position = 0
        with memoryview(library.data) as data:
            for change, gone in self.changes:
                stream.write(data[position : change.start])
                for piece in change.pieces:
                    stream.write(piece if isinstance(piece, bytes) else data[piece[0] : piece[1]])
                stream.write(bytes(change.end - change.filled - gone))
                position = change.end
            stream.write(data[position:])
        stream.write(self.tail)


def lay_out(tables: Tables, changes: Sequence[RangeChange], dropped: frozenset[int], size: int) -> Layout:
    """Return where everything lies after changes of ranges that share no bytes; dropped sections, by number, are gone.

    Raises NotUnderstood: Ranges share bytes.
    """
    with_holes = [(change, hole(tables, change)) for change in changes]
    holes = sorted((start, end) for _, (start, end) in with_holes if start < end)
    moved = _Moved(holes)
    segments = [part for segment in tables.segments for part in _around(segment, holes, moved)]
    grown = len(segments) != len(tables.segments)
    if grown:  # nothing that is mapped may claim to be the table
        segments = [segment for segment in segments if segment.kind != elf.PROGRAM_HEADERS]
    table = b"".join(elf.SEGMENT.pack(*segment) for segment in segments)
    table_at, padding = moved(tables.segments_at), b""
    if grown:  # behind what is mapped in whole pages: the loader takes a table from there, but clears what follows data
        mapped = max(segment.end for segment in segments if segment.kind == LOAD and segment.size)
        table_at = max(-(-moved(size) // 8) * 8, -(-mapped // tables.page) * tables.page)
        padding = bytes(table_at - moved(size))
    new_sizes = {(change.start, change.end): change.filled - change.start for change in changes}
    sections = [
        SectionHeader(*bytes(10)) if index in dropped else _section(section, moved, new_sizes)
        for index, section in enumerate(tables.sections)
    ]
    _, old_table, sections_range = tables.own_ranges
    headers = b"".join(elf.SECTION.pack(*section) for section in sections)
    own = (
        ((32, 48), struct.pack("<QQ", table_at, moved(tables.sections_at))),
        ((56, 58), struct.pack("<H", len(segments))),
        (old_table, b"" if grown else table),
        (sections_range, headers),
    )
    everything = [(change, past - start) for change, (start, past) in with_holes]
    everything += [(RangeChange(start=start, end=end, pieces=(new,)), 0) for (start, end), new in own]
    everything.sort(key=lambda pair: pair[0].start)
    if any(change.end > following.start for (change, _), (following, _) in pairwise(everything)):
        raise NotUnderstood("what changes overlaps")
    return Layout(before=size, changes=tuple(everything), tail=padding + table if grown else b"")


class _Moved:
    """Tells where what lay at an offset of the file lies now; for what is gone, where it would begin."""

    def __init__(self, holes: Sequence[tuple[int, int]]) -> None:
        self._holes = holes
        self._gone = [0, *accumulate(end - start for start, end in holes)]

    def __call__(self, offset: int) -> int:
        count = bisect_right(self._holes, (offset, -1))
        if count and offset < self._holes[count - 1][1]:
            return self._holes[count - 1][0] - self._gone[count - 1]
        return offset - self._gone[count]


def _around(segment: Segment, holes: Sequence[tuple[int, int]], moved: _Moved) -> Iterator[Segment]:
    """Return the segments that take the place of one."""
    if segment.kind != LOAD or not segment.size:
        yield segment._replace(offset=moved(segment.offset) if segment.size else segment.offset)
        return
    position = segment.offset
    for start, end in holes:
        if segment.offset <= start and end <= segment.end:
            if position < start:
                yield _part(segment, position, start, start - position, moved)
            yield _part(segment, start, start, end - start, moved)._replace(flags=elf.READABLE)
            position = end
    past = position - segment.offset
    if segment.memory > past:
        yield _part(segment, position, segment.end, segment.memory - past, moved)


def _part(segment: Segment, start: int, end: int, memory: int, moved: _Moved) -> Segment:
    """Return a segment for a part of what another one maps."""
    offset, past = moved(start), start - segment.offset
    align = segment.align
    while (segment.address + past - offset) % max(align, 1):
        align //= 2
    return segment._replace(
        offset=offset,
        address=segment.address + past,
        physical=segment.physical + past,
        size=end - start,
        memory=memory,
        align=align,
    )


def _section(section: SectionHeader, moved: _Moved, sizes: dict[tuple[int, int], int]) -> SectionHeader:
    """Return a section's new header; one whose content was replaced as a whole has the new content's size."""
    if section.kind == NULL:
        return section
    size = section.size
    if section.offset != section.end:
        size = sizes.get((section.offset, section.end), moved(section.end) - moved(section.offset))
    return section._replace(offset=moved(section.offset), size=size)
