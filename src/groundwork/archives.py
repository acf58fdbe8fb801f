"""Reads tar archives, also the two of a conda package, with limits on what others packed."""

from __future__ import annotations

import lzma
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import zstandard

from groundwork.errors import IntegrityError, MegabuildError, OutOfSpaceError
from groundwork.files import existing_part
from groundwork.text import size
from groundwork.zip_archive import open_zip

_BLOCK = 1 << 20
_LARGEST = 1 << 40  # bytes of a file
_MOST_ENTRIES = 1_000_000  # each takes a kilobyte of memory
_LONGEST_NAME = 1 << 20  # bytes of a header with a long name or with details; Linux has names of 4096 bytes
_IN_MEMORY = frozenset(
    {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE}
)  # fmt: skip


class BoundedEntry(tarfile.TarInfo):
    """An entry for archives that others made; tarfile reads headers with long names into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> BoundedEntry:
        """Read a header; raises ReadError if more of it would be read into memory than any name needs."""
        entry = super().frombuf(buf, encoding, errors)
        if entry.type in _IN_MEMORY and entry.size > _LONGEST_NAME:
            raise tarfile.ReadError(f"a name of {entry.size} bytes")
        return entry


def entries(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield an archive's entries.

    Raises TarError: A size that no file has, since skipping it takes hours; or too many entries.
    """
    for number, entry in enumerate(archive):
        if entry.size > _LARGEST:
            raise tarfile.ReadError(f"{entry.name} claims {entry.size} bytes")
        if number >= _MOST_ENTRIES:
            raise tarfile.ReadError(f"more than {_MOST_ENTRIES} entries")
        yield entry


def check_sizes(archive: tarfile.TarFile, most: int, too_large: MegabuildError) -> None:
    """Read an archive's headers; raise ``too_large`` at the entry with which it unpacks to more than ``most`` bytes.

    The content of that entry is not read, so a bomb costs no time.
    """
    octets = 0
    for entry in entries(archive):
        octets += entry.size
        if octets > most:
            raise too_large


def check_conda(package: IO[bytes] | Path, most: int, too_large: MegabuildError, *, parts: str = "") -> None:
    """Raise ``too_large`` if a ``.conda`` file's archives, or those that begin with ``parts``, unpack to more."""
    with open_zip(package) as outer:
        for name in outer.namelist():
            if not name.endswith(".tar.zst") or not name.startswith(parts):
                continue
            with (
                outer.open(name) as part,
                zstandard.ZstdDecompressor().stream_reader(part) as plain,
                tarfile.open(fileobj=plain, mode="r|", tarinfo=BoundedEntry, bufsize=_BLOCK) as archive,
            ):
                check_sizes(archive, most, too_large)


def unpack(tarball: Path, folder: Path) -> None:
    """Unpack a tar archive, never to a path outside the folder.

    Raises IntegrityError: The archive is broken.
    Raises OutOfSpaceError: It unpacks to more than the disk has free.
    """
    existing = existing_part(folder.absolute())
    free = shutil.disk_usage(existing).free
    too_large = OutOfSpaceError(
        f"{tarball}: unpacks to more than the {size(free)} that {existing} has free",
        "free disk space, if you trust the archive",
    )
    try:
        with tarfile.open(tarball, tarinfo=BoundedEntry) as archive:
            # Python before 3.10.12 has no filters, and ignores this
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            check_sizes(archive, free, too_large)
            archive.extractall(folder)
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = f"{tarball.name} cannot be unpacked: {error}"
        raise IntegrityError(reason, "download the archive again") from error


@contextmanager
def open_tar_pair(
    source: IO[bytes], target: IO[bytes], *, level: int, tar_format: int = tarfile.PAX_FORMAT
) -> Iterator[tuple[tarfile.TarFile, tarfile.TarFile]]:
    """Open one archive for reading and one for writing; both files stay open afterwards."""
    with (
        zstandard.ZstdDecompressor().stream_reader(source, closefd=False) as plain,
        zstandard.ZstdCompressor(level=level, threads=-1).stream_writer(target, closefd=False) as packed,
        tarfile.open(fileobj=plain, mode="r|", tarinfo=BoundedEntry) as old,
        tarfile.open(fileobj=packed, mode="w|", format=tar_format, bufsize=_BLOCK) as new,
    ):
        yield old, new
