"""Reads and checks an ELF library's tables of segments and sections, before anything in the file is moved.

:mod:`cuda_code.elf_file` reads names and offsets only; rewriting the tables needs every field. lief can write ELF files
too, but it chooses its own layout and holds the whole file in memory several times.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from cuda_code.elf_file import SECTION, ElfFile, Section

# kinds of segments
LOAD = 1
INTERP = 3
PROGRAM_HEADERS = 6
# kinds of sections
SYMTAB = 2
RELA = 4
REL = 9
DYNSYM = 11
RELR = 19
ALLOC = 2  # flag of a section
READABLE = 4  # flag of a segment
HEADER_SIZE = 64
SEGMENT = struct.Struct("<IIQQQQQQ")
# kinds of files
_PROGRAM = 2
_SHARED = 3
_SMALLEST_PAGE = 0x1000
_LARGEST_PAGE_ELSEWHERE = 0x10000


class NotUnderstood(ValueError):
    """A library has a form that cannot be slimmed safely."""


class Segment(NamedTuple):
    """The fields of a program header; ``size`` is the size in the file."""

    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    size: int
    memory: int
    align: int

    @property
    def end(self) -> int:
        """End offset in the file."""
        return self.offset + self.size


@dataclass(frozen=True, kw_only=True)
class Tables:
    """Both tables of a library, and their file offsets."""

    segments: tuple[Segment, ...]
    segments_at: int
    sections: tuple[Section, ...]
    sections_at: int
    names: tuple[str, ...]  #: Names of the sections.
    names_in: int  #: Number of the section that has the names.
    page: int  #: Bytes; content may move only by multiples of this.
    is_program: bool  #: The kernel starts it, and expects the program headers at their original offset.

    @property
    def loaded(self) -> tuple[Segment, ...]:
        """The segments mapped into memory, by address."""
        return tuple(segment for segment in self.segments if segment.kind == LOAD)

    @property
    def own_ranges(self) -> tuple[tuple[int, int], ...]:
        """The file ranges of the header and both tables."""
        return (
            (0, HEADER_SIZE),
            (self.segments_at, self.segments_at + len(self.segments) * SEGMENT.size),
            (self.sections_at, self.sections_at + len(self.sections) * SECTION.size),
        )

    def mapped_by(self, start: int, end: int) -> Segment | None:
        """Return the segment that maps a range of the file; None if the range is not mapped.

        Raises NotUnderstood: The range is mapped only in part or by several segments, or has a second use.
        """
        sections = [(section.offset, section.end) for section in self.sections]
        others = [(segment.offset, segment.end) for segment in self.segments if segment.kind != LOAD]
        if _count_touched(sections, start, end) > 1 or _count_touched(
            [*others, *self.own_ranges], start, end
        ):
            raise NotUnderstood(f"bytes {start} to {end} have two uses")
        touched = [segment for segment in self.loaded if segment.offset < end and start < segment.end]
        if not touched:
            return None
        segment = touched[0]
        if len(touched) > 1 or start < segment.offset or segment.end < end:
            raise NotUnderstood(f"bytes {start} to {end} are not mapped by one segment")
        return segment


def _count_touched(ranges: Iterable[tuple[int, int]], start: int, end: int) -> int:
    """Count the ranges that have a byte in common with another one."""
    return sum(1 for first, last in ranges if first < end and start < last)


def read(library: ElfFile) -> Tables:
    """Read a library's tables.

    Raises NotUnderstood: The file is no shared library or program, or its tables are missing or inconsistent.
    """
    data = library.data
    (kind,) = struct.unpack_from("<H", data, 16)
    segments_at, sections_at = struct.unpack_from("<QQ", data, 32)
    sizes = struct.unpack_from("<HHHH", data, 52)
    section_count, names_in = struct.unpack_from("<HH", data, 60)
    header_size, segment_size, segment_count, section_size = sizes
    if kind not in (_PROGRAM, _SHARED):
        raise NotUnderstood("neither a shared library nor a program")
    if not section_count:
        raise NotUnderstood("no section headers")
    if (header_size, segment_size, section_size) != (HEADER_SIZE, SEGMENT.size, SECTION.size):
        raise NotUnderstood("tables of unknown form")
    segments_end = segments_at + segment_count * SEGMENT.size
    if segments_end > len(data):
        raise NotUnderstood("program headers beyond the end of the file")
    segments = tuple(Segment(*row) for row in SEGMENT.iter_unpack(data[segments_at:segments_end]))
    names, sections = zip(*library.every, strict=True)
    tables = Tables(
        segments=segments,
        segments_at=segments_at,
        sections=sections,
        sections_at=sections_at,
        names=names,
        names_in=names_in,
        page=_step(library.machine, segments, sections),
        is_program=kind == _PROGRAM or any(segment.kind == INTERP for segment in segments),
    )
    _check(tables, len(data))
    return tables


def _step(machine: str, segments: Sequence[Segment], sections: Sequence[Section]) -> int:
    """Return the bytes by whose multiples content may move.

    This is the machine's largest page or the largest section alignment, limited to the segments' alignment: the loader
    places a library by its segments and ignores sections (glibc's ``_dl_map_segments``).
    """
    heeded = max((segment.align for segment in segments if segment.kind == LOAD), default=1)
    asked = max((section.align for section in sections if section.flags & ALLOC), default=1)
    page = _LARGEST_PAGE_ELSEWHERE
    if machine == "x86_64":
        page = _SMALLEST_PAGE
    return max(page, min(asked, heeded))


def _check(tables: Tables, size: int) -> None:
    """Raise NotUnderstood if the tables contradict each other or the file."""
    if not tables.loaded:
        raise NotUnderstood("no segment is mapped into memory")
    last = _find_end(tables)
    if last > size:
        raise NotUnderstood("sections or segments beyond the end of the file")
    if size - last >= tables.page:
        raise NotUnderstood("data after the last section")
    _check_loaded(tables)


def _check_loaded(tables: Tables) -> None:
    """Raise NotUnderstood if the mapped segments contradict each other."""
    in_file = sorted((segment.offset, segment.end) for segment in tables.loaded)
    in_memory = [(segment.address, segment.address + segment.memory) for segment in tables.loaded]
    if _overlap(in_file) or _overlap(in_memory):
        raise NotUnderstood("overlapping segments")
    aligns = [tables.page, *(segment.align for segment in tables.loaded)]
    if not all(map(_is_power_of_two, aligns)):
        raise NotUnderstood("segments of unknown form")
    if any(segment.size > segment.memory for segment in tables.loaded):
        raise NotUnderstood("segments of unknown form")
    for segment in tables.loaded:
        step = max(segment.align, _SMALLEST_PAGE)
        if segment.size and (segment.address - segment.offset) % step:
            raise NotUnderstood("segments not aligned to pages")


def _find_end(tables: Tables) -> int:
    """Return the offset after the last byte in use."""
    ends = [end for _, end in tables.own_ranges]
    ends += [segment.end for segment in tables.segments]
    ends += [section.end for section in tables.sections]
    return max(ends)


def _overlap(ranges: Sequence[tuple[int, int]]) -> bool:
    """Return whether a range begins before the former one ends."""
    return any(following[0] < former[1] for former, following in pairwise(ranges))


def _is_power_of_two(number: int) -> bool:
    """Return whether a number has at most one bit set; also true for 0."""
    return not number & (number - 1)
