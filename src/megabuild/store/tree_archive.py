"""Packs a compiled tree into one file with nanosecond dates, by which ninja decides what to rebuild."""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import zstandard

from groundwork.archives import BoundedEntry, entries
from groundwork.errors import IntegrityError

_SECOND = 10**9
#: Errors of an archive's content; a name may also be too long for the file system, or a date out of its range.
_DAMAGED = (tarfile.TarError, zstandard.ZstdError, EOFError, ValueError, RuntimeError, OverflowError)
#: Filter of entries that this module has checked.
_CHECKED: Literal["fully_trusted"] = "fully_trusted"
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
    unpacking = _Unpacking(folder)
    try:
        with (
            zstandard.open(source, "rb") as packed,
            tarfile.open(fileobj=packed, mode="r|", tarinfo=BoundedEntry) as archive,
        ):
            for member in entries(archive):
                unpacking.extract(archive, member)
        unpacking.check_links()
    except (*_DAMAGED, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _UNUSABLE:
            raise
        shutil.rmtree(folder, ignore_errors=True)
        raise IntegrityError(
            f"{source.name}: cannot be unpacked: {error}", "delete it from the store"
        ) from error
    unpacking.date_folders()


@dataclass(frozen=True)
class _Folder:
    path: Path
    mode: int
    date: int


class _Unpacking:
    """Unpacks the entries of an archive in their order; raises ValueError for an entry that is not allowed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folders: list[_Folder] = []
        self._links: list[Path] = []
        self._files: set[str] = set()  # names of files unpacked so far

    def extract(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Unpack an entry; of folders, mode and date follow later."""
        date = _date(member)
        safe = tarfile.data_filter(member, str(self._folder))
        path = self._folder / safe.name
        self._check_place(path, safe)
        if safe.isdir():
            self._folders.append(_Folder(path, (member.mode or 0o755) & 0o777, date))
            archive.extract(safe.replace(mode=0o700, deep=False), self._folder, filter=_CHECKED)
            return
        if safe.issym():
            self._links.append(path)
            # Newer filters shorten the target, which is wrong where a folder on the way is a link. `check_links`
            # judges where it leads.
            safe = safe.replace(linkname=member.linkname, deep=False)
        else:
            if safe.islnk() and safe.linkname not in self._files:
                raise ValueError(f"{safe.name} links to {safe.linkname}, which is not in the archive")
            self._files.add(safe.name)
            safe = safe.replace(mode=member.mode & 0o777, deep=False)
        archive.extract(safe, self._folder, filter=_CHECKED)
        os.utime(path, ns=(date, date), follow_symlinks=False)

    def _check_place(self, path: Path, entry: tarfile.TarInfo) -> None:
        above = [self._folder / parent for parent in Path(entry.name).parents]  # the last one is the folder
        if ".." in path.parts or any(parent.is_symlink() for parent in above[:-1]):
            raise ValueError(f"{entry.name} would be written through a link")
        is_same_folder = entry.isdir() and path.is_dir()
        if path.is_symlink() or (path.exists() and not is_same_folder):
            raise ValueError(f"{entry.name} occurs twice")

    def check_links(self) -> None:
        """Check that no link leads outside; at the end, because a later entry may make a link's target a link."""
        for link in self._links:
            if not link.resolve().is_relative_to(self._folder.resolve()):
                raise ValueError(f"{link.relative_to(self._folder)} points outside the archive")

    def date_folders(self) -> None:
        """Set modes and dates of folders; at the end, because each new entry changes its folder's date."""
        for folder in reversed(self._folders):
            folder.path.chmod(folder.mode)
            os.utime(folder.path, ns=(folder.date, folder.date))


def _date(member: tarfile.TarInfo) -> int:
    """Return a member's date in nanoseconds; raise ValueError if the date is malformed."""
    written = member.pax_headers.get("mtime", str(int(member.mtime)))
    seconds, _, fraction = written.partition(".")
    return int(seconds) * _SECOND + int(fraction.ljust(9, "0")[:9] or 0)
