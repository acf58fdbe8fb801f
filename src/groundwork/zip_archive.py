"""Reads zip archives that others made, wheels and conda packages, in bounded memory, whatever sizes they claim.

zipfile unpacks bzip2, LZMA and zstandard without a limit: 1.6 kB can become gigabytes in memory. Wheels on PyPI are
stored or deflated, and conda packages stored.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_BOUNDED = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_ENCRYPTED = 1  # a flag of a member
_NAMES = {zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "LZMA", 93: "zstandard"}


@contextmanager
def open_zip(file: Path | IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """Open an archive for reading. A member read in blocks takes a block's memory, and stops at its claimed size.

    Raises zipfile.BadZipFile: It is no zip archive, or has members that are encrypted, or neither stored nor deflated.
    """
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.flag_bits & _ENCRYPTED:
                raise zipfile.BadZipFile(f"{member.filename!r} is encrypted")
            if member.compress_type not in _BOUNDED:
                method = _NAMES.get(member.compress_type, f"method {member.compress_type}")
                raise zipfile.BadZipFile(
                    f"{member.filename!r} is compressed with {method}; only stored and deflated files are read"
                )
        yield archive


def read_member(archive: zipfile.ZipFile, name: str, *, most: int = 64 << 20) -> bytes:
    """Return a member's content of at most ``most`` bytes.

    Raises zipfile.BadZipFile: The content is longer, or differs from its checksum.
    """
    # not archive.read(): it inflates all input at once, whatever size is claimed
    with archive.open(name) as member:
        content = member.read(most + 1)
    if len(content) > most:
        raise zipfile.BadZipFile(f"{name!r} is longer than {most} bytes")
    return content
