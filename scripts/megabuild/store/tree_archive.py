"""Packs a compiled tree into one file with nanosecond dates, by which ninja decides what to rebuild."""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import zstandard

from groundwork.archives import BoundedEntry, entries
from groundwork.errors import IntegrityError

_SECOND = 10**9
#: Errors of an archive's content; a name may also be too long for the file system, or a date out of its range.
_DAMAGED = (tarfile.TarError, zstandard.ZstdError, EOFError, ValueError, RuntimeError, OverflowError)
_UNUSABLE = (errno.ENAMETOOLONG, errno.EINVAL)


def pack(folders: Mapping[str, Path], target: Path) -> None:
    """Write folders into one archive, under the given names; no process may be changing them.

    Raises IntegrityError: A folder contains an entry that is neither file, folder nor link.
    """
    compressor = zstandard.ZstdCompressor(level=3, threads=-1)
    with (
        target.open("xb") as raw,
        compressor.stream_writer(raw) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, folder in folders.items():
            archive.add(folder, name, filter=partial(_describe, name, folder))


def _describe(name: str, folder: Path, member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Give an entry of ``folder``, archived under ``name``, no owner and its exact date."""
    path = folder / os.path.relpath(member.name, name)
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        raise IntegrityError(f"{path}: neither a file, a folder nor a link", "delete it and run again")
    date = path.lstat().st_mtime_ns
    # tarfile itself would write a float, which is off by a hundred nanoseconds
    member.pax_headers = {"mtime": f"{date // _SECOND}.{date % _SECOND:09d}"}
    return member.replace(uid=0, gid=0, uname="", gname="", deep=False)


def unpack(source: Path, folder: Path) -> None:
    """Unpack an archive of :func:`pack` into a new ``folder``; no entry may be written or point outside it.

    Raises IntegrityError: The archive is invalid or malicious.
    """
    folder.mkdir(parents=True)
    folders: list[tuple[Path, int, int]] = []
    links: list[Path] = []
    files: set[str] = set()
    try:
        with (
            zstandard.open(source, "rb") as packed,
            tarfile.open(fileobj=packed, mode="r|", tarinfo=BoundedEntry) as archive,
        ):
            for member in entries(archive):
                date = _date(member)
                safe = tarfile.data_filter(member, str(folder))
                path = folder / safe.name
                if ".." in path.parts or any(
                    above.is_symlink() for above in path.parents if folder in above.parents
                ):
                    raise ValueError(f"{safe.name} would be written through a link")
                if path.is_symlink() or (path.exists() and not (safe.isdir() and path.is_dir())):
                    raise ValueError(f"{safe.name} occurs twice")
                if safe.isdir():
                    folders.append((path, (member.mode or 0o755) & 0o777, date))
                    safe = safe.replace(mode=0o700, deep=False)
                elif safe.islnk() and safe.linkname not in files:
                    raise ValueError(f"{safe.name} links to {safe.linkname}, which is not in the archive")
                elif safe.issym():
                    links.append(path)
                    # Newer filters shorten the target, which is wrong where a folder on the way is a link. The
                    # check below judges where it leads.
                    safe = safe.replace(linkname=member.linkname, deep=False)
                else:
                    files.add(safe.name)
                    safe = safe.replace(mode=member.mode & 0o777, deep=False)
                archive.extract(safe, folder, filter="fully_trusted")  # checked above
                if not safe.isdir():
                    os.utime(path, ns=(date, date), follow_symlinks=False)
        for link in links:  # checked last: a later entry may have made a link's target a link
            if not link.resolve().is_relative_to(folder.resolve()):
                raise ValueError(f"{link.relative_to(folder)} points outside the archive")
    except (*_DAMAGED, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _UNUSABLE:
            raise
        shutil.rmtree(folder, ignore_errors=True)
        raise IntegrityError(
            f"{source.name}: cannot be unpacked: {error}", "delete it from the store"
        ) from error
    for path, mode, date in reversed(folders):  # set last: each new entry changed its folder's date
        path.chmod(mode)
        os.utime(path, ns=(date, date))


def _date(member: tarfile.TarInfo) -> int:
    """Return a member's date in nanoseconds; raise ValueError if the date is malformed."""
    seconds, _, fraction = member.pax_headers.get("mtime", str(int(member.mtime))).partition(".")
    return int(seconds) * _SECOND + int(fraction.ljust(9, "0")[:9] or 0)
