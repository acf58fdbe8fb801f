"""Set back a build tree's dates in the future, which it has after the clock was set back.

ninja only compares dates. If the clock was ahead (dead battery, resumed or moved virtual machine), objects are newer
than a source that changes today: ninja does not compile it, and reruns CMake a hundred times, because build.ninja stays
older than its inputs. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

#: ninja (1.9 and later) records in it, in nanoseconds, when it made each output, and uses that date for rules with
#: ``restat``. .ninja_deps may stay ahead: its records are valid as long as the output is not newer.
_LOG = ".ninja_log"
_LOG_FIELDS = 5
_LOG_DATE = 2  # the index of the field
_SECOND = 10**9
#: A temporary file at the top of a tree. It has a fixed name, so that the next run removes the file of a killed one.
SCRATCH = ".megabuild-scratch"


class Mended(NamedTuple):
    """The result of :func:`mend`."""

    newest: int  #: the tree's newest date now, in nanoseconds since 1970
    seconds: int  #: by which all dates were set back; 0 if none was in the future


def mend(tree: Path) -> Mended:
    """If a tree has a date in the future, set all its dates back by the same time, which keeps their order.

    A kill during this costs only recompiles: ninja's log comes first, then the oldest files, so that no output becomes
    newer relative to its inputs.

    `tree`: the folder; need not exist. No process may write to it; links in it are not followed.

    Raises OSError: A date cannot be set, or a folder not read.
    """
    remove(tree / SCRATCH)
    dated = sorted(_dated(tree))
    if not dated:
        return Mended(0, 0)
    newest, _ = dated[-1]
    logs = {path: _read(path) for _, path in dated if path.name == _LOG}
    latest = newest
    for content in logs.values():
        latest = max([latest, *_dates(content)])
    now = _now(tree)
    if latest <= now:
        return Mended(newest, 0)
    seconds = -((now - latest) // _SECOND)
    by = seconds * _SECOND
    for path, content in logs.items():
        if content:
            _write(path, _shifted(content, by), tree / SCRATCH)
    for date, path in dated:
        status = path.lstat()
        os.utime(path, ns=(status.st_atime_ns, date - by), follow_symlinks=False)
    return Mended(newest - by, seconds)


def _dated(tree: Path) -> Iterator[tuple[int, Path]]:
    """Yield every file, folder and link below a tree, after its date."""
    for folder, folders, files in os.walk(tree, onerror=_refuse):
        for name in (*folders, *files):
            path = Path(folder, name)
            yield path.lstat().st_mtime_ns, path


def _refuse(error: OSError) -> None:
    # as whole_walk.py, which the driver cannot import with this file
    if not isinstance(error, FileNotFoundError):
        raise error


def remove(path: Path) -> None:
    """Remove a folder, file or link, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _now(tree: Path) -> int:
    """Return the file system's time, which on a network drive is the server's."""
    probe = tree / SCRATCH
    with probe.open("xb") as file:
        now = os.fstat(file.fileno()).st_mtime_ns
    probe.unlink()
    return now


def _read(path: Path) -> bytes:
    """Return a regular file's content; nothing for a link, or for a pipe, which would block."""
    if not stat.S_ISREG(path.lstat().st_mode):
        return b""
    return path.read_bytes()


def _write(path: Path, content: bytes, scratch: Path) -> None:
    with scratch.open("xb") as new:
        new.write(content)
    scratch.chmod(stat.S_IMODE(path.stat().st_mode))
    os.replace(scratch, path)


def _dates(log: bytes) -> Iterator[int]:
    for line in log.splitlines():
        yield _date(line.split(b"\t"))


def _date(fields: Sequence[bytes]) -> int:
    """Return the date in a line of ninja's log; 0 if it has none."""
    if len(fields) != _LOG_FIELDS or not fields[_LOG_DATE].isdigit():
        return 0
    return int(fields[_LOG_DATE])


def _shifted(log: bytes, by: int) -> bytes:
    lines = []
    for line in log.splitlines(keepends=True):
        fields = line.split(b"\t")
        date = _date(fields)
        if date > by:
            fields[_LOG_DATE] = b"%d" % (date - by)
        lines.append(b"\t".join(fields))
    return b"".join(lines)
