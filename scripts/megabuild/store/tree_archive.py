"""A compiled tree as one file, with its dates to the nanosecond: by these ninja knows what is up to date."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from collections.abc import Mapping
from pathlib import Path

import zstandard

from groundwork.errors import IntegrityError

_SECOND = 10**9


def pack(folders: Mapping[str, Path], target: Path) -> None:
    """Write folders, under the names given, into one archive; nothing may be at work in them.

    Raises IntegrityError: There is something in them that is neither file, folder nor link.
    """
    compressor = zstandard.ZstdCompressor(level=3, threads=-1)
    with (
        target.open("xb") as raw,
        compressor.stream_writer(raw) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, folder in folders.items():
            _add(archive, folder, name)
            for here, below, names in os.walk(folder):
                below.sort()
                for entry in sorted([*below, *names]):
                    path = Path(here, entry)
                    _add(archive, path, f"{name}/{path.relative_to(folder).as_posix()}")


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    status = path.lstat()
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode)):
        raise IntegrityError(f"{path} is neither a file, a folder nor a link", "remove it, and run again")
    member = archive.gettarinfo(path, name)
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    # what tarfile writes by itself is a float, which is a hundred nanoseconds off
    member.pax_headers = {"mtime": f"{status.st_mtime_ns // _SECOND}.{status.st_mtime_ns % _SECOND:09d}"}
    if member.isreg():
        with path.open("rb") as file:
            archive.addfile(member, file)
    else:
        archive.addfile(member)


def unpack(source: Path, folder: Path) -> None:
    """Unpack what :func:`pack` has written; nothing of it lands or leads outside ``folder``, which is made.

    Raises IntegrityError: It is no such archive, or is out to do harm.
    """
    folder.mkdir(parents=True)
    folders: list[tuple[Path, int, int]] = []
    links: list[Path] = []
    files: set[str] = set()
    try:
        with zstandard.open(source, "rb") as packed, tarfile.open(fileobj=packed, mode="r|") as archive:
            for member in archive:
                date = _date(member)
                safe = tarfile.data_filter(member, str(folder))
                path = folder / safe.name
                if ".." in path.parts or any(
                    above.is_symlink() for above in path.parents if folder in above.parents
                ):
                    raise ValueError(f"{safe.name} is written through a link")
                if path.is_symlink() or (path.exists() and not (safe.isdir() and path.is_dir())):
                    raise ValueError(f"{safe.name} is in it twice")
                if safe.isdir():
                    folders.append((path, (member.mode or 0o755) & 0o777, date))
                    safe = safe.replace(mode=0o700, deep=False)
                elif safe.islnk() and safe.linkname not in files:
                    raise ValueError(f"{safe.name} is a link to {safe.linkname}, which is no file of it")
                elif safe.issym():
                    links.append(path)
                else:
                    files.add(safe.name)
                    safe = safe.replace(mode=member.mode & 0o777, deep=False)
                archive.extract(safe, folder, filter="fully_trusted")  # it has been looked at
                if not safe.isdir():
                    os.utime(path, ns=(date, date), follow_symlinks=False)
        for link in links:  # now that all is there: what one alone leads to may have been a link later
            if not link.resolve().is_relative_to(folder.resolve()):
                raise ValueError(f"{link.relative_to(folder)} leads outside")
    except (tarfile.TarError, zstandard.ZstdError, EOFError, ValueError, RuntimeError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise IntegrityError(
            f"{source.name} cannot be unpacked: {error}", "remove it from the store"
        ) from error
    for path, mode, date in reversed(folders):  # what came into them has changed their dates
        path.chmod(mode)
        os.utime(path, ns=(date, date))


def _date(member: tarfile.TarInfo) -> int:
    """Return a member's date in nanoseconds; raises ValueError where it has none that is exact."""
    seconds, _, rest = member.pax_headers.get("mtime", str(int(member.mtime))).partition(".")
    return int(seconds) * _SECOND + int(rest.ljust(9, "0")[:9] or 0)
