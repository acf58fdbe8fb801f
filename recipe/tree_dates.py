"""Dates in the future, which a clock that was set back leaves in a build tree: found, and set back as well.

ninja goes by dates alone. A tree whose clock was ahead (a dead battery, a resumed or moved virtual machine) has objects
that are newer than any source changed today: a changed source is not compiled, and CMake runs a hundred times over
because build.ninja stays older than what it is made from. Standard library only.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: In which ninja (1.9 and later) notes, in nanoseconds, when it ran what made an output, and goes by that where a rule
#: says ``restat``. Its .ninja_deps may stay ahead: what it holds counts as long as the output is no newer.
_LOG = ".ninja_log"
_LOG_FIELDS, _LOG_DATE = 5, 2
_SECOND = 10**9


class Mended(NamedTuple):
    """What became of a tree."""

    newest: int  #: its newest date now, in nanoseconds since 1970
    seconds: int  #: by which everything was set back; 0 where nothing lay in the future


def mend(tree: Path) -> Mended:
    """Set all dates in a tree back by the same time where one lies in the future: what is newer than what stays so.

    A kill in between costs compiles at most: ninja's log comes first, then what is oldest, so that an output is never
    newer than before beside what it is made from.

    `tree`: the folder; need not exist. Nothing may be running in it, and no link in it is followed.

    Raises OSError: A date cannot be set.
    """
    dated = sorted(_dated(tree))
    newest = max([date for date, _ in dated], default=0)
    logs = {path: content for _, path in dated if path.name == _LOG and (content := _read(path))}
    latest = max([newest, *(date for content in logs.values() for date in _dates(content))])
    if not dated or latest <= (now := _now(tree)):
        return Mended(newest, 0)
    seconds = -((now - latest) // _SECOND)
    for path, content in logs.items():
        _write(path, _shifted(content, seconds * _SECOND))
    for date, path in dated:
        status = path.lstat()
        os.utime(path, ns=(status.st_atime_ns, date - seconds * _SECOND), follow_symlinks=False)
    return Mended(newest - seconds * _SECOND, seconds)


def _dated(tree: Path) -> Iterator[tuple[int, Path]]:
    """Give every file, folder and link below a tree, with its date."""
    for folder, folders, files in os.walk(tree):
        for name in (*folders, *files):
            path = Path(folder, name)
            yield path.lstat().st_mtime_ns, path


def _now(tree: Path) -> int:
    """Return what the file system takes for the time: on a server, its own."""
    with tempfile.NamedTemporaryFile(dir=tree) as probe:
        return os.fstat(probe.fileno()).st_mtime_ns


def _read(path: Path) -> bytes:
    """Return a file's content; nothing of a link, or of a pipe, for which one would wait."""
    if not stat.S_ISREG(path.lstat().st_mode):
        return b""
    return path.read_bytes()


def _write(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as beside:
        beside.write(content)
    os.chmod(beside.name, stat.S_IMODE(path.stat().st_mode))
    os.replace(beside.name, path)


def _dates(log: bytes) -> Iterator[int]:
    for line in log.splitlines():
        fields = line.split(b"\t")
        if len(fields) == _LOG_FIELDS and fields[_LOG_DATE].isdigit():
            yield int(fields[_LOG_DATE])


def _shifted(log: bytes, by: int) -> bytes:
    lines = []
    for line in log.splitlines(keepends=True):
        fields = line.split(b"\t")
        if len(fields) == _LOG_FIELDS and fields[_LOG_DATE].isdigit() and int(fields[_LOG_DATE]) > by:
            fields[_LOG_DATE] = b"%d" % (int(fields[_LOG_DATE]) - by)
        lines.append(b"\t".join(fields))
    return b"".join(lines)
