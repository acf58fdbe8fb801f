"""What of the cache is in use: locks that any number of users share, and only whoever cleans wants alone.

A cache serves every checkout and every user of a machine, so no list of runs says who uses it. The kernel drops the
locks of a process that was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from groundwork import files
from groundwork.errors import LOCKLESS, PreflightError

#: What configs share: channels, Debian roots, wheels. What belongs to one config has its name.
SHARED = "cache"
_FOLDER, _MARK = "in-use", ".megabuild"
#: What may be in a folder before it is marked: nothing of this is ever cleaned.
_HARMLESS = frozenset({_FOLDER, "audit", "install-pyg", "logs", "others", "tmp", "lock", "lock.pid"})


@contextlib.contextmanager
def shared_lock(cache: Path, *names: str) -> Iterator[None]:
    """Keep others from cleaning what configs share, and what has these names; waits while that is being done.

    Where that cannot be noted (a cache that is read-only or has no locks), whoever cleans cannot either.
    """
    mark(cache)
    with contextlib.ExitStack() as held:
        for name in (SHARED, *names):
            with contextlib.suppress(OSError):
                held.callback(os.close, _locked(cache, name, fcntl.LOCK_SH))
        yield


@contextlib.contextmanager
def exclusive_lock(cache: Path, name: str) -> Iterator[bool]:
    """Keep others out for as long as the context lasts; False where somebody is using it. Raises PreflightError."""
    with contextlib.ExitStack() as held:
        try:
            held.callback(os.close, _locked(cache, name, fcntl.LOCK_EX | fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        except OSError as error:
            if error.errno not in LOCKLESS:
                raise
            raise PreflightError(
                f"{cache} is on a file system without locks: nobody can tell whether it is in use",
                "delete by hand what docs/files.md says, while nothing runs",
            ) from error
        yield True


def _locked(cache: Path, name: str, how: int) -> int:
    """Lock a name's file, which stays; closing what is returned unlocks it."""
    path = cache / _FOLDER / f"{name.replace('/', '+')}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(file, how)
    except OSError:
        os.close(file)
        raise
    return file


def mark(folder: Path) -> None:
    """Mark a folder as one of this program, unless somebody else's files were there before it."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        if not is_marked(folder) and not {path.name for path in folder.iterdir()} - _HARMLESS:
            (folder / _MARK).touch()


def is_marked(folder: Path) -> bool:
    """Return whether a folder is this program's, and not just any that was named."""
    return (folder / _MARK).is_file() and not (folder / _MARK).is_symlink()


def note_output(cache: Path, output: Path) -> None:
    """Note that what is built below an output folder may need what lies in the cache."""
    text = os.fsencode(output.absolute())
    with contextlib.suppress(OSError):
        files.write(cache / _FOLDER / "outputs" / hashlib.sha256(text).hexdigest()[:16], text)


def outputs(cache: Path) -> dict[Path, Path]:
    """Return the output folders that were noted, with their notes."""
    notes = sorted((cache / _FOLDER / "outputs").glob("*"))
    return {Path(os.fsdecode(note.read_bytes())): note for note in notes if note.is_file()}
