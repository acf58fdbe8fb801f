"""Reads and checks an ELF library's tables of segments and sections, before anything in the file is moved.

:mod:`cuda_code.elf_file` reads names and offsets only; rewriting the tables needs every field. lief can write ELF files
too, but it chooses its own layout and holds the whole file in memory several times.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from cuda_code.elf_file import SECTION, ElfFile, Section

LOAD, INTERP, PROGRAM_HEADERS = 1, 3, 6
SYMTAB, RELA, REL, DYNSYM, RELR = 2, 4, 9, 11, 19
ALLOC, READABLE = 2, 4
HEADER_SIZE = 64
SEGMENT = struct.Struct("<IIQQQQQQ")
_PROGRAM, _SHARED = 2, 3
_SMALLEST_PAGE = 0x1000


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
        others = [(segment.offset, segment.end) for segment in self.segments if segment.kind != LOAD]
        parts = [section for section in self.sections if section.offset < end and start < section.end]
        taken = any(first < end and start < last for first, last in (*others, *self.own_ranges))
        if taken or len(parts) > 1:
            raise NotUnderstood(f"bytes {start} to {end} have two uses")
        touched = [segment for segment in self.loaded if segment.offset < end and start < segment.end]
        if not touched:
            return None
        if len(touched) > 1 or start < touched[0].offset or touched[0].end < end:
            raise NotUnderstood(f"bytes {start} to {end} are not mapped by one segment")
        return touched[0]


def read(library: ElfFile) -> Tables:
    """Read a library's tables.

    Raises NotUnderstood: The file is no shared library or program, or its tables are missing or inconsistent.
    """
    data = library.data
    (kind,) = struct.unpack_from("<H", data, 16)
    segments_at, sections_at = struct.unpack_from("<QQ", data, 32)
    *sizes, section_count, names_in = struct.unpack_from("<6H", data, 52)
    header_size, segment_size, segment_count, section_size = sizes
    if kind not in (_PROGRAM, _SHARED):
        raise NotUnderstood("neither a shared library nor a program")
    if not section_count:
        raise NotUnderstood("no section headers")
    if (header_size, segment_size, section_size) != (HEADER_SIZE, SEGMENT.size, SECTION.size):
        raise NotUnderstood("tables of unknown form")
    if segments_at + segment_count * SEGMENT.size > len(data):
        raise NotUnderstood("program headers beyond the end of the file")
    rows = data[segments_at : segments_at + segment_count * SEGMENT.size]
    segments = tuple(Segment(*row) for row in SEGMENT.iter_unpack(rows))
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
    return max(_SMALLEST_PAGE if machine == "x86_64" else 0x10000, min(asked, heeded))


def _check(tables: Tables, size: int) -> None:
    """Raise NotUnderstood if the tables contradict each other or the file."""
    loaded = tables.loaded
    in_file = sorted((segment.offset, segment.end) for segment in loaded)
    in_memory = [(segment.address, segment.address + segment.memory) for segment in loaded]
    last = max(*(segment.end for segment in tables.segments), *(section.end for section in tables.sections))
    last = max(last, *(end for _, end in tables.own_ranges))
    if not loaded:
        raise NotUnderstood("no segment is mapped into memory")
    if last > size:
        raise NotUnderstood("sections or segments beyond the end of the file")
    if size - last >= tables.page:
        raise NotUnderstood("data after the last section")
    if any(end > start for ranges in (in_file, in_memory) for (_, end), (start, _) in pairwise(ranges)):
        raise NotUnderstood("overlapping segments")
    powers = [tables.page, *(segment.align for segment in loaded)]
    if any(power & (power - 1) for power in powers) or any(part.size > part.memory for part in loaded):
        raise NotUnderstood("segments of unknown form")
    if any(part.size and (part.address - part.offset) % max(part.align, _SMALLEST_PAGE) for part in loaded):
        raise NotUnderstood("segments not aligned to pages")
