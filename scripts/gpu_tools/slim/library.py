"""One ELF library made smaller: GPU code of other architectures and symbol tables leave the file."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cuda_code import cuda_archs
from cuda_code.elf_file import ElfFile, NotElf, opened
from gpu_tools.sizes.inside import classify_section
from gpu_tools.sizes.tree import Kind
from gpu_tools.slim import gpu_code, layout, tables
from gpu_tools.slim.fat_binary import CodeFilter
from gpu_tools.slim.layout import Layout, RangeChange
from gpu_tools.slim.tables import ALLOC, NotUnderstood, Tables

_SYMBOLS = frozenset({Kind.SYMBOLS, Kind.DEBUG})


@dataclass(frozen=True, kw_only=True)
class LibrarySlimmed:
    """What one library would become, or became."""

    #: Bytes of the file on the disk, before and afterwards.
    before: int
    after: int
    #: Bytes given back by GPU code of other architectures, and by symbol tables and debug information.
    gpu_code: int
    symbols: int
    #: The GPU code that stays: ``sm_120``, ``compute_120``, ``lto_75``.
    kept: tuple[str, ...]
    #: All GPU code that it had, if GPUs were named.
    code: tuple[str, ...] = ()
    #: What was done, or why nothing: ``compacted``, ``pages left out``, ``symbols left out``,
    #: ``nothing to take away``, ``left alone: ...``.
    how: str


def slim_library(
    source: Path, target: Path | None, *, gpus: Sequence[str], symbols: bool, keep_lto: bool = True
) -> LibrarySlimmed:
    """Write a smaller copy of a library, or say what that would give.

    The new file's mode and fsync are the caller's; none is written where nothing is to be taken away, or without a
    target. A file of a form not understood here is left alone, with the reason in ``how``. Without GPUs (``sm_120``)
    their code is not touched; ``symbols``: ``.symtab``, ``.strtab`` and debug sections go; ``keep_lto``: LTO-IR, which
    nvJitLink compiles at run time, stays.

    Raises OSError: It cannot be read or written.
    """
    try:
        with opened(source) as library:
            plan, done = _planned(library, CodeFilter(gpus=gpus, keep_lto=keep_lto), symbols=symbols)
            if target is not None and plan is not None:
                with target.open("xb") as stream:
                    plan.write(library, stream)
    except (NotElf, NotUnderstood, struct.error) as error:
        size = source.stat().st_size
        return LibrarySlimmed(
            before=size, after=size, gpu_code=0, symbols=0, kept=(), how=f"left alone: {error}"
        )
    return done


def _planned(library: ElfFile, wanted: CodeFilter, *, symbols: bool) -> tuple[Layout | None, LibrarySlimmed]:
    """Return how a library is to be written, None if as it is, and what that gives."""
    found, size = tables.read(library), len(library.data)
    dropped = _symbol_sections(found) if symbols else frozenset()
    cuts: list[gpu_code.Cut] = []
    kept = code = frozenset[str]()
    if wanted.gpus and not found.is_program:
        cuts, kept, code = gpu_code.cuts(library, found, wanted, dropped)
    sections = (found.sections[index] for index in sorted(dropped))
    without = [RangeChange(start=section.offset, end=section.end) for section in sections]
    parts = [part for cut in cuts for part in (cut.change, *cut.elsewhere)]
    plan = layout.lay_out(found, [*without, *parts], dropped, size)
    gone = {change.start: count for change, count in plan.changes}
    symbol_bytes = sum(gone[change.start] for change in without)
    ways = {
        "compacted": any(cut.is_compacted for cut in cuts),
        "pages left out": any(not cut.is_compacted for cut in cuts),
        "symbols left out": symbol_bytes > 0,
    }
    smaller = plan.after < size
    done = LibrarySlimmed(
        before=size,
        after=plan.after if smaller else size,
        gpu_code=size - plan.after - symbol_bytes if smaller else 0,
        symbols=symbol_bytes if smaller else 0,
        kept=cuda_archs.ordered(kept),
        code=cuda_archs.ordered(code),
        how=", ".join(way for way, taken in ways.items() if taken) if smaller else "nothing to take away",
    )
    return (plan if smaller else None), done


def _symbol_sections(found: Tables) -> frozenset[int]:
    """Return the sections, by number, that only debuggers and profilers read."""
    wanted = {
        index
        for index, (name, section) in enumerate(zip(found.names, found.sections, strict=True))
        if classify_section(name).kind in _SYMBOLS
        and not section.flags & ALLOC
        and section.end > section.offset
        and index != found.names_in
    }
    while needed := wanted & {
        section.link for index, section in enumerate(found.sections) if index not in wanted
    }:
        wanted -= needed
    return frozenset(wanted)
