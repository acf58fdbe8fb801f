"""Streams of zstandard-compressed tar archives, of which a conda package holds two."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import zstandard

_BLOCK = 1 << 20


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
