"""Stops an operation at its n-th write-like call, as a kill at that moment would, for every n in turn.

Counted are opening a file for writing, renames, links, removals, folders, modes, dates, fsync and sync, by Python's own
audit events, so nothing of the operation is replaced but sync itself, which waits for the writes of all programs. Calls
of libraries that are not Python, and halves of a write, are the subject of ``tests/integration/kill_at_write.c``.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

#: Audit events, and the position of the path that they change. A rename counts by its target.
_CHANGES = {
    "os.rename": 1, "os.link": 1, "os.symlink": 1, "os.remove": 0, "os.rmdir": 0, "os.mkdir": 0, "os.chmod": 0,
    "os.utime": 0,
}  # fmt: skip
#: The position of the event's folder descriptor, which is -1 without one.
_DIR_FD = {"os.rename": 3, "os.link": 3, "os.symlink": 2, "os.remove": 1, "os.rmdir": 1, "os.mkdir": 2}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Stopped(BaseException):
    """Raised at the chosen call, and at all later ones: a killed process cleans nothing up."""


@dataclass
class Calls:
    """The write-like calls below a folder, in their order."""

    below: Path
    stop_at: int  #: number of the call that is not done; 0: none
    made: list[str] = field(default_factory=list)  #: ``rename output/record.json``

    def note(self, what: str, path: str) -> None:
        full = Path(os.path.abspath(path))
        if not full.is_relative_to(self.below):
            return
        if self.stop_at and len(self.made) + 1 >= self.stop_at:
            raise Stopped
        self.made.append(f"{what} {full.relative_to(self.below)}")


_watching: list[Calls] = []


def note(what: str, path: str) -> None:
    """Count a call of a library that is not Python; its stand-in in a test calls this first."""
    if _watching:
        _watching[-1].note(what, path)


def _hear(event: str, values: tuple[object, ...]) -> None:
    if not _watching:
        return
    if event == "open":
        path, _, flags = values
        if isinstance(flags, int) and flags & _WRITES and isinstance(path, (str, bytes, os.PathLike)):
            _watching[-1].note("open", os.fsdecode(path))
    elif event in _CHANGES:
        path = values[_CHANGES[event]]
        if isinstance(path, int):
            path = f"/proc/self/fd/{path}"
        folder = values[_DIR_FD[event]] if event in _DIR_FD else -1
        at = os.readlink(f"/proc/self/fd/{folder}") if isinstance(folder, int) and folder >= 0 else ""
        _watching[-1].note(event.removeprefix("os."), os.path.join(at, os.fsdecode(path)))  # type: ignore[arg-type]


sys.addaudithook(_hear)  # for the whole process: Python cannot remove one


@contextmanager
def watched(below: Path, *, stop_at: int = 0) -> Iterator[list[str]]:
    """Yield the list of write-like calls below a folder, which grows as they are made."""
    calls = Calls(below.absolute(), stop_at)
    real = os.fsync

    def fsync(file: int) -> None:
        calls.note("fsync", os.readlink(f"/proc/self/fd/{file}"))
        real(file)

    def sync() -> None:
        calls.note("sync", str(calls.below))

    with mock.patch.object(os, "fsync", fsync), mock.patch.object(os, "sync", sync):
        _watching.append(calls)
        try:
            yield calls.made
        finally:
            _watching.remove(calls)


def unflushed(calls: Iterable[str], record: str) -> set[str]:
    """Return the files that a power cut may empty just after ``record`` has got its name.

    ``record``: the path that vouches for them, and the beginning of its temporary names.
    """
    written: set[str] = set()
    for call in calls:
        what, _, path = call.partition(" ")
        if what == "rename" and path == record:
            return written
        if what == "open" and not path.startswith(record):
            written.add(path)
        elif what == "sync":
            written.clear()
        elif what == "fsync":
            written.discard(path)
    raise AssertionError(f"{record} is never written")


def every_stop_in_place(
    below: Path, prepare: Callable[[], object], operation: Callable[[], object]
) -> Iterator[None]:
    """Prepare an operation and stop it, for each of its write-like calls below a folder; yield after each stop.

    For files that name absolute paths, which a copy would not have.
    """
    for stop_at in itertools.count(1):
        prepare()
        try:
            with watched(below, stop_at=stop_at):
                operation()
        except Stopped:
            yield
        else:
            assert stop_at > 1, "the operation writes nothing"
            return


def every_stop(template: Path, operation: Callable[[Path], object], *, step: int = 1) -> Iterator[Path]:
    """Yield, for each of an operation's write-like calls, a copy of a folder in which it was stopped there.

    The copy is always at the same path, next to the template. With ``step``, only every so many calls are tried.
    """
    folder = template.with_name(f"{template.name}-stopped")
    for stop_at in itertools.count(1, step):
        subprocess.run(["sh", "-c", 'rm -rf "$2" && cp -a "$1" "$2"', "sh", template, folder], check=True)
        try:
            with watched(folder, stop_at=stop_at):
                operation(folder)
        except Stopped:
            yield folder
        else:
            assert stop_at > 1, "the operation writes nothing"
            return
