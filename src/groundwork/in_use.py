"""Locks on parts of the cache: any number of runs share a lock; `megabuild clean` takes it exclusively.

All checkouts and users of a machine may share a cache, so there is no list of its runs. The kernel releases the locks
of a killed process.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from groundwork import files
from groundwork.errors import name_lock

#: The lock of files that configs share (channels, Debian roots, wheels). A config's own files have its name as lock.
SHARED = "cache"
_FOLDER = "in-use"
_MARK = ".megabuild"
#: Entries that a folder may have before it is marked; `clean` never removes them.
_HARMLESS = frozenset({_FOLDER, "audit", "install-pyg", "logs", "others", "tmp", "lock"})


@contextlib.contextmanager
def shared_lock(cache: Path, *names: str) -> Iterator[None]:
    """Protect shared files and the files of ``names`` from `megabuild clean`; wait while a clean is running.

    On a read-only cache or one without locks this does nothing: `clean` does not work there, either.
    """
    mark(cache)
    with contextlib.ExitStack() as held:
        for name in (SHARED, *names):
            with contextlib.suppress(OSError):
                held.callback(os.close, _locked(cache, name, fcntl.LOCK_SH))
        yield


@contextlib.contextmanager
def exclusive_lock(cache: Path, name: str) -> Iterator[bool]:
    """Yield True with the exclusive lock held, or False if a run uses the files.

    Raises OSError: The file system has no locks.
    """
    try:
        file = _locked(cache, name, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
        return
    try:
        yield True
    finally:
        os.close(file)


def _locked(cache: Path, name: str, how: int) -> int:
    """Lock a name's file and return the file descriptor; closing it unlocks. The file is never deleted."""
    path = cache / _FOLDER / f"{name.replace('/', '+')}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(file, how)
    except OSError as error:
        os.close(file)
        name_lock(error, str(path))
        raise
    return file


def mark(folder: Path) -> None:
    """Mark a folder as megabuild's, unless it already holds other files."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        names = {path.name for path in folder.iterdir()}
        if names <= _HARMLESS:
            (folder / _MARK).touch()


def is_marked(folder: Path) -> bool:
    """Return whether a folder is marked as megabuild's."""
    return (folder / _MARK).is_file() and not (folder / _MARK).is_symlink()


def note_output(cache: Path, output: Path) -> None:
    """Record in the cache that builds in an output folder may need its files."""
    text = os.fsencode(output.absolute())
    with contextlib.suppress(OSError):
        files.write(cache / _FOLDER / "outputs" / hashlib.sha256(text).hexdigest()[:16], text)


def outputs(cache: Path) -> dict[Path, Path]:
    """Return the recorded output folders, with the files that record them.

    Raises OSError if they cannot be read, IntegrityError for a pipe or link among them.
    """
    recorded: dict[Path, Path] = {}
    for note in files.below(cache / _FOLDER / "outputs"):
        with files.open_regular(note) as file:
            output = os.fsdecode(file.read())
        recorded[Path(output)] = note
    return recorded
