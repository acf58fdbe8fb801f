"""Streams of zstandard-compressed tar archives, of which a conda package holds two; damage of archives."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import zstandard

from groundwork.errors import IntegrityError, MegabuildError, of_system, of_text

_BLOCK = 1 << 20
_LARGEST = 1 << 40  # bytes of a file


def entries(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield an archive's entries; raises TarError for a size that no file has, since skipping it takes hours."""
    for entry in archive:
        if entry.size > _LARGEST:
            raise tarfile.ReadError(f"{entry.name} claims {entry.size} bytes")
        yield entry


@contextmanager
def explain_damage(path: Path) -> Iterator[None]:
    """Convert an archive reader's errors to IntegrityError; each format has its own error classes.

    Raises IntegrityError: The archive is damaged, or lacks a file.
    """
    try:
        yield
    except (MemoryError, MegabuildError):
        raise
    except Exception as error:
        # permission, disk and memory errors say nothing about the archive
        missing = isinstance(error, FileNotFoundError)
        if isinstance(error, OSError) and not missing and (error.filename or of_system(error)):
            raise
        reason = f"{path}: damaged archive: {error or type(error).__name__}"
        raise of_text(str(error)) or IntegrityError(reason, "download or build it again") from error


@contextmanager
def open_tar_pair(
    source: IO[bytes], target: IO[bytes], *, level: int, tar_format: int = tarfile.PAX_FORMAT
) -> Iterator[tuple[tarfile.TarFile, tarfile.TarFile]]:
    """Open one archive for reading and one for writing; both files stay open afterwards."""
    with (
        zstandard.ZstdDecompressor().stream_reader(source, closefd=False) as plain,
        zstandard.ZstdCompressor(level=level, threads=-1).stream_writer(target, closefd=False) as packed,
        tarfile.open(fileobj=plain, mode="r|") as old,
        tarfile.open(fileobj=packed, mode="w|", format=tar_format, bufsize=_BLOCK) as new,
    ):
        yield old, new
