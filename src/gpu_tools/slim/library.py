"""Slims one ELF library: removes GPU code for other architectures, and symbol tables."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path

from cuda_code import cuda_archs
from cuda_code.elf_file import ElfFile, NotElf, opened
from gpu_tools.sizes.inside import classify_section
from gpu_tools.sizes.tree import Kind
from gpu_tools.slim import tables
from gpu_tools.slim.gpu_code import find_changes
from gpu_tools.slim.layout import Layout, RangeChange, lay_out
from gpu_tools.slim.tables import ALLOC, NotUnderstood, Tables
from groundwork.exhaustive import assert_never


class Shrinking(Enum):
    """A part of libraries that slimming removes."""

    GPU_CODE = auto()  #: Code for other GPUs.
    SYMBOLS = auto()  #: Symbol tables and debug information.


@dataclass(frozen=True, kw_only=True)
class LibrarySlimmed:
    """The result of slimming one library, or its forecast."""

    #: Bytes of the file before and after.
    before: int
    after: int
    #: Bytes saved by removing GPU code, and by removing symbol tables and debug information.
    gpu_code: int = 0
    symbols: int = 0
    #: All GPU code before slimming, if GPUs were named: ``sm_120``, ``compute_120``, ``lto_75``.
    code: tuple[str, ...] = ()
    trouble: str = ""  #: Why the library cannot be slimmed.

    @property
    def saved(self) -> int:
        """Bytes saved."""
        return self.before - self.after

    def saved_by(self, shrinking: Shrinking) -> int:
        """Return the bytes saved by removing one part."""
        match shrinking:
            case Shrinking.GPU_CODE:
                return self.gpu_code
            case Shrinking.SYMBOLS:
                return self.symbols
            case never:
                return assert_never(never)


def slim_library(source: Path, target: Path | None, *, gpus: Sequence[str], symbols: bool) -> LibrarySlimmed:
    """Write a smaller copy of a library to ``target``; without a target, only forecast the savings.

    No file is written if nothing can be removed or the form is unknown; the caller sets mode and syncs. Without
    ``gpus`` (``sm_120``), GPU code is kept; ``symbols`` removes ``.symtab``, ``.strtab`` and debug sections.

    Raises OSError: A file cannot be read or written.
    """
    try:
        with opened(source) as library:
            layout, result = _plan(library, gpus, symbols=symbols)
            if target is not None and layout is not None:
                with target.open("xb") as stream:
                    layout.write(library, stream)
    except (NotElf, NotUnderstood, struct.error) as error:
        size = source.stat().st_size
        return LibrarySlimmed(before=size, after=size, trouble=str(error))
    return result


def _plan(library: ElfFile, gpus: Sequence[str], *, symbols: bool) -> tuple[Layout | None, LibrarySlimmed]:
    """Return the new layout, or None if nothing can be removed, and the forecast."""
    parsed = tables.read(library)
    size = len(library.data)
    dropped = frozenset[int]()
    if symbols:
        dropped = _find_symbol_sections(parsed)
    changes: list[RangeChange] = []
    code = frozenset[str]()
    if gpus and not parsed.is_program:
        changes, code = find_changes(library, parsed, gpus, dropped)
    without = []
    for index in sorted(dropped):
        section = parsed.sections[index]
        without.append(RangeChange(start=section.offset, end=section.end))
    layout = lay_out(parsed, [*without, *changes], dropped, size)
    result = LibrarySlimmed(before=size, after=size, code=cuda_archs.ordered(code))
    if layout.after >= size:
        return None, result
    gone = {placed.change.start: placed.gone for placed in layout.changes}
    symbol_bytes = sum(gone[change.start] for change in without)
    gpu_bytes = size - layout.after - symbol_bytes
    return layout, replace(result, after=layout.after, gpu_code=gpu_bytes, symbols=symbol_bytes)


def _find_symbol_sections(parsed: Tables) -> frozenset[int]:
    """Return the numbers of the sections that only debuggers and profilers read."""
    unread: set[int] = set()
    for index, section in enumerate(parsed.sections):
        kind = classify_section(parsed.names[index]).kind
        is_in_file = section.end > section.offset and not section.flags & ALLOC
        if kind in (Kind.SYMBOLS, Kind.DEBUG) and is_in_file and index != parsed.names_in:
            unread.add(index)
    while True:
        linked = {section.link for index, section in enumerate(parsed.sections) if index not in unread}
        if unread.isdisjoint(linked):
            return frozenset(unread)
        unread -= linked
