"""A compiled tree as one file, with its dates to the nanosecond: by these ninja knows what is up to date."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import zstandard

from groundwork.errors import IntegrityError, PreflightError

#: zstd's: three quarters of a tree are objects and sources, which need no more.
_LEVEL = 3
_SECOND = 10**9


def pack(folders: Mapping[str, Path], target: Path, halt: Callable[[], None] = lambda: None) -> None:
    """Write folders, under the names given, into one archive; nothing may be at work in them.

    ``halt`` is called for each file; what it raises ends it.

    Raises IntegrityError: There is something in them that is neither file, folder nor link.
    """
    compressor = zstandard.ZstdCompressor(level=_LEVEL, threads=-1)
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
                    halt()
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


def unpack(source: Path, folder: Path, halt: Callable[[], None] = lambda: None) -> None:
    """Unpack what :func:`pack` has written; nothing of it lands outside ``folder``, which is made.

    Raises IntegrityError: It is no such archive, or is out to do harm.
    Raises PreflightError: This Python cannot unpack safely.
    """
    if not hasattr(tarfile, "tar_filter"):
        raise PreflightError(
            "this Python unpacks without looking (PEP 706)", "use Python 3.10.12, 3.11.4 or newer"
        )
    folder.mkdir(parents=True)
    folders: list[tuple[Path, int, int]] = []
    try:
        with zstandard.open(source, "rb") as packed, tarfile.open(fileobj=packed, mode="r|") as archive:
            for member in archive:
                halt()
                date = _date(member)
                safe = tarfile.tar_filter(member, str(folder))
                path = folder / safe.name
                if safe.isdir():
                    folders.append((path, safe.mode or 0o755, date))
                    safe = safe.replace(mode=0o700, deep=False)
                elif not (safe.isreg() or safe.issym() or safe.islnk()):
                    raise IntegrityError(
                        f"{source.name} holds a device: {safe.name}", "remove it from the store"
                    )
                archive.extract(safe, folder, filter="tar")
                if not safe.isdir():
                    os.utime(path, ns=(date, date), follow_symlinks=False)
    except (tarfile.TarError, zstandard.ZstdError, EOFError, ValueError) as error:
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
