"""Slims one ELF library: removes GPU code for other architectures, and symbol tables."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cuda_code import cuda_archs
from cuda_code.elf_file import ElfFile, NotElf, opened
from gpu_tools.sizes.inside import classify_section
from gpu_tools.sizes.tree import Kind
from gpu_tools.slim import tables
from gpu_tools.slim.gpu_code import find_changes
from gpu_tools.slim.layout import Layout, RangeChange, lay_out
from gpu_tools.slim.tables import ALLOC, NotUnderstood, Tables


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
    parsed, size = tables.read(library), len(library.data)
    dropped = _find_symbol_sections(parsed) if symbols else frozenset()
    changes: list[RangeChange] = []
    code = frozenset[str]()
    if gpus and not parsed.is_program:
        changes, code = find_changes(library, parsed, gpus, dropped)
    sections = (parsed.sections[index] for index in sorted(dropped))
    without = [RangeChange(start=section.offset, end=section.end) for section in sections]
    layout = lay_out(parsed, [*without, *changes], dropped, size)
    if layout.after >= size:
        return None, LibrarySlimmed(before=size, after=size, code=cuda_archs.ordered(code))
    gone = {change.start: count for change, count in layout.changes}
    symbol_bytes = sum(gone[change.start] for change in without)
    return layout, LibrarySlimmed(
        before=size,
        after=layout.after,
        gpu_code=size - layout.after - symbol_bytes,
        symbols=symbol_bytes,
        code=cuda_archs.ordered(code),
    )


def _find_symbol_sections(parsed: Tables) -> frozenset[int]:
    """Return the numbers of the sections that only debuggers and profilers read."""
    unread = {
        index
        for index, (name, section) in enumerate(zip(parsed.names, parsed.sections, strict=True))
        if classify_section(name).kind in (Kind.SYMBOLS, Kind.DEBUG)
        and not section.flags & ALLOC
        and section.end > section.offset
        and index != parsed.names_in
    }
    while needed := unread & {
        section.link for index, section in enumerate(parsed.sections) if index not in unread
    }:
        unread -= needed
    return frozenset(unread)
