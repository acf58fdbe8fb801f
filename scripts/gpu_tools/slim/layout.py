"""Computes the layout of a library after removing content: memory addresses stay, whole pages leave the file.

A segment is split around each hole by additional program headers; the hole reads as zeros. The table of program headers
grows and moves to the end of the file: the loader copies a table that is not mapped (glibc's
``_dl_map_object_from_fd``).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import IO

from cuda_code.elf_file import NULL, SECTION, ElfFile, Section
from gpu_tools.slim import tables as elf
from gpu_tools.slim.tables import LOAD, NotUnderstood, Segment, Tables

#: The loader keeps all program headers on its thread's stack (100 bytes each), and maps each one separately: a process
#: may have 65,530 mappings for all its libraries (vm.max_map_count).
MOST_HOLES = 512
#: Bytes; a smaller hole is not worth two mappings.
SMALLEST_HOLE = 0x4000
_NOT_MAPPED_ALIGNMENT = 16

#: Literal bytes, or a range of the original file.
Piece = bytes | tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class RangeChange:
    """A range of the file and its new content; the range after the content is empty."""

    start: int
    end: int
    pieces: tuple[Piece, ...] = ()

    @property
    def filled(self) -> int:
        """Offset at which the new content ends."""
        lengths = (len(piece) if isinstance(piece, bytes) else piece[1] - piece[0] for piece in self.pieces)
        return self.start + sum(lengths)


def hole(tables: Tables, change: RangeChange) -> tuple[int, int]:
    """Return the range of the original file that a change removes; it may be empty.

    Raises NotUnderstood: The range is used by more than one part of the file.
    """
    if tables.mapped_by(change.start, change.end):
        start = -(-change.filled // tables.page) * tables.page
        return start, max(start, change.end // tables.page * tables.page)
    later = any(segment.end > change.start for segment in tables.loaded)
    step = tables.page if later else _NOT_MAPPED_ALIGNMENT
    return change.filled, change.filled + (change.end - change.filled) // step * step


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The changes to a library's file, by offset."""

    before: int  #: Bytes of the original file.
    changes: tuple[tuple[RangeChange, int], ...]  #: Each with the number of bytes that it removes.
    tail: bytes  #: Appended to the file.

    @property
    def after(self) -> int:
        """Bytes of the new file."""
        return self.before - sum(gone for _, gone in self.changes) + len(self.tail)

    def write(self, library: ElfFile, stream: IO[bytes]) -> None:
        """Write the new file to ``stream``."""
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
    """Return the layout after changes of ranges that do not overlap; ``dropped`` has the removed sections' numbers.

    Raises NotUnderstood: Ranges overlap.
    """
    with_holes = [(change, hole(tables, change)) for change in changes]
    holes = sorted((start, end) for _, (start, end) in with_holes if start < end)
    moved = _Moved(holes)
    segments = [part for segment in tables.segments for part in _split_segment(segment, holes, moved)]
    grown = len(segments) != len(tables.segments)
    if grown:  # PT_PHDR must name a mapped table; the new one is not mapped
        segments = [segment for segment in segments if segment.kind != elf.PROGRAM_HEADERS]
    table = b"".join(elf.SEGMENT.pack(*segment) for segment in segments)
    table_at, padding = moved(tables.segments_at), b""
    if grown:
        # after the last mapped page: the loader reads a table there, but zeroes the rest of a data page
        mapped = max(segment.end for segment in segments if segment.kind == LOAD and segment.size)
        table_at = max(-(-moved(size) // 8) * 8, -(-mapped // tables.page) * tables.page)
        padding = bytes(table_at - moved(size))
    new_sizes = {(change.start, change.end): change.filled - change.start for change in changes}
    sections = [
        Section(*bytes(10)) if index in dropped else _section(section, moved, new_sizes)
        for index, section in enumerate(tables.sections)
    ]
    _, old_table, sections_range = tables.own_ranges
    headers = b"".join(SECTION.pack(*section) for section in sections)
    headers_changed = (
        ((32, 48), struct.pack("<QQ", table_at, moved(tables.sections_at))),
        ((56, 58), struct.pack("<H", len(segments))),
        (old_table, b"" if grown else table),
        (sections_range, headers),
    )
    all_changes = [(change, past - start) for change, (start, past) in with_holes]
    all_changes += [
        (RangeChange(start=start, end=end, pieces=(new,)), 0) for (start, end), new in headers_changed
    ]
    all_changes.sort(key=lambda pair: pair[0].start)
    if any(change.end > following.start for (change, _), (following, _) in pairwise(all_changes)):
        raise NotUnderstood("changed ranges overlap")
    return Layout(before=size, changes=tuple(all_changes), tail=padding + table if grown else b"")


class _Moved:
    """Maps an offset in the original file to the new one; an offset in a hole to the start of the hole."""

    def __init__(self, holes: Sequence[tuple[int, int]]) -> None:
        self._holes = holes
        self._gone = [0, *accumulate(end - start for start, end in holes)]

    def __call__(self, offset: int) -> int:
        count = bisect_right(self._holes, (offset, -1))
        if count and offset < self._holes[count - 1][1]:
            return self._holes[count - 1][0] - self._gone[count - 1]
        return offset - self._gone[count]


def _split_segment(segment: Segment, holes: Sequence[tuple[int, int]], moved: _Moved) -> Iterator[Segment]:
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
    """Return a segment for a part of another segment's range."""
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


def _section(section: Section, moved: _Moved, sizes: dict[tuple[int, int], int]) -> Section:
    """Return a section's new header; ``sizes`` has the new sizes of sections replaced as a whole, by range."""
    if section.kind == NULL:
        return section
    size = section.size
    if section.offset != section.end:
        size = sizes.get((section.offset, section.end), moved(section.end) - moved(section.offset))
    return section._replace(offset=moved(section.offset), size=size)
