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
_TABLE_ALIGNMENT = 8
#: File ranges in the ELF header: the offsets of both tables, and the number of segments.
_TABLE_OFFSETS = (32, 48)
_SEGMENT_COUNT = (56, 58)

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
        return self.start + sum(map(_length, self.pieces))


def _length(piece: Piece) -> int:
    if isinstance(piece, bytes):
        return len(piece)
    start, end = piece
    return end - start


def hole(tables: Tables, change: RangeChange) -> tuple[int, int]:
    """Return the range of the original file that a change removes; it may be empty.

    Raises NotUnderstood: The range is used by more than one part of the file.
    """
    if tables.mapped_by(change.start, change.end):
        start = _round_up(change.filled, tables.page)
        end = change.end // tables.page * tables.page
        return start, max(start, end)
    step = _NOT_MAPPED_ALIGNMENT
    if any(segment.end > change.start for segment in tables.loaded):
        step = tables.page
    removed = (change.end - change.filled) // step * step
    return change.filled, change.filled + removed


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step


@dataclass(frozen=True, kw_only=True)
class PlacedChange:
    """A change, and the number of bytes that it removes from the file."""

    change: RangeChange
    gone: int


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The changes to a library's file, by offset."""

    before: int  #: Bytes of the original file.
    changes: tuple[PlacedChange, ...]
    tail: bytes  #: Appended to the file.

    @property
    def after(self) -> int:
        """Bytes of the new file."""
        return self.before - sum(placed.gone for placed in self.changes) + len(self.tail)

    def write(self, library: ElfFile, stream: IO[bytes]) -> None:
        """Write the new file to ``stream``."""
        position = 0
        with memoryview(library.data) as data:
            for placed in self.changes:
                change = placed.change
                stream.write(data[position : change.start])
                for piece in change.pieces:
                    stream.write(piece if isinstance(piece, bytes) else data[slice(*piece)])
                empty = change.end - change.filled - placed.gone
                stream.write(bytes(empty))
                position = change.end
            stream.write(data[position:])
        stream.write(self.tail)


def lay_out(tables: Tables, changes: Sequence[RangeChange], dropped: frozenset[int], size: int) -> Layout:
    """Return the layout after changes of ranges that do not overlap; ``dropped`` has the removed sections' numbers.

    Raises NotUnderstood: Ranges overlap.
    """
    placed: list[PlacedChange] = []
    holes: list[tuple[int, int]] = []
    for change in changes:
        start, end = hole(tables, change)
        placed.append(PlacedChange(change=change, gone=end - start))
        if start < end:
            holes.append((start, end))
    moved = _Moved(sorted(holes))
    segment_table = _place_segment_table(tables, moved, size)
    _, segments_range, sections_range = tables.own_ranges
    headers = {
        _TABLE_OFFSETS: struct.pack("<QQ", segment_table.at, moved(tables.sections_at)),
        _SEGMENT_COUNT: struct.pack("<H", segment_table.count),
        segments_range: segment_table.in_place,
        sections_range: _section_table(tables, changes, dropped, moved),
    }
    for (start, end), new in headers.items():
        placed.append(PlacedChange(change=RangeChange(start=start, end=end, pieces=(new,)), gone=0))
    placed.sort(key=lambda item: item.change.start)
    for one, following in pairwise(placed):
        if one.change.end > following.change.start:
            raise NotUnderstood("changed ranges overlap")
    return Layout(before=size, changes=tuple(placed), tail=segment_table.tail)


@dataclass(frozen=True, kw_only=True)
class _SegmentTable:
    """The new program headers, in the place of the former ones or after the last byte."""

    at: int  #: Offset in the new file.
    count: int
    in_place: bytes = b""
    tail: bytes = b""


def _place_segment_table(tables: Tables, moved: _Moved, size: int) -> _SegmentTable:
    segments: list[Segment] = []
    for segment in tables.segments:
        segments += _split_segment(segment, moved)
    if len(segments) == len(tables.segments):
        in_place = _pack_segments(segments)
        return _SegmentTable(at=moved(tables.segments_at), count=len(segments), in_place=in_place)
    # PT_PHDR must name a mapped table; the new one is not mapped
    segments = [segment for segment in segments if segment.kind != elf.PROGRAM_HEADERS]
    # after the last mapped page: the loader reads a table there, but zeroes the rest of a data page
    mapped = max(segment.end for segment in segments if segment.kind == LOAD and segment.size)
    end = moved(size)
    at = max(_round_up(end, _TABLE_ALIGNMENT), _round_up(mapped, tables.page))
    return _SegmentTable(at=at, count=len(segments), tail=bytes(at - end) + _pack_segments(segments))


def _pack_segments(segments: Sequence[Segment]) -> bytes:
    return b"".join(elf.SEGMENT.pack(*segment) for segment in segments)


def _section_table(
    tables: Tables, changes: Sequence[RangeChange], dropped: frozenset[int], moved: _Moved
) -> bytes:
    new_sizes = {(change.start, change.end): change.filled - change.start for change in changes}
    table = b""
    for index, section in enumerate(tables.sections):
        if index in dropped:
            table += bytes(SECTION.size)
        else:
            table += SECTION.pack(*_section(section, moved, new_sizes))
    return table


class _Moved:
    """Maps an offset in the original file to the new one; an offset in a hole to the start of the hole."""

    def __init__(self, holes: Sequence[tuple[int, int]]) -> None:
        self.holes = holes
        self._gone = [0, *accumulate(end - start for start, end in holes)]

    def __call__(self, offset: int) -> int:
        count = bisect_right(self.holes, (offset, -1))
        if count:
            start, end = self.holes[count - 1]
            if offset < end:
                return start - self._gone[count - 1]
        return offset - self._gone[count]


def _split_segment(segment: Segment, moved: _Moved) -> Iterator[Segment]:
    if not segment.size:
        yield segment
        return
    if segment.kind != LOAD:
        yield segment._replace(offset=moved(segment.offset))
        return
    position = segment.offset
    for start, end in moved.holes:
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
    past = start - segment.offset
    offset = moved(start)
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
