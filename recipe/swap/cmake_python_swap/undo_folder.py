"""Keep copies of files on disk, from which a failed or killed change is undone.

Standard library only, CPython >= 3.10. Contents and dates are restored, because ninja compares dates.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from .atomic_file import write_atomically

_FOLDER = "python-swap.undo"


def prepare(build_dir: Path, files: Iterable[Path]) -> None:
    """Copy files of a build folder for `undo`; the copies appear all at once or not at all."""
    temporary = build_dir / f"{_FOLDER}.new"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    for file in files:
        copy = temporary / file.relative_to(build_dir)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)
    os.rename(temporary, build_dir / _FOLDER)


def undo(build_dir: Path) -> bool:
    """Restore the files that `prepare` copied, unless `forget` was called since; return whether there were copies.

    The copies stay until `forget`.
    """
    folder = build_dir / _FOLDER
    if not folder.is_dir():
        return False
    for copy in sorted(folder.rglob("*")):
        if not copy.is_file():
            continue
        target = build_dir / copy.relative_to(folder)
        content = copy.read_bytes()
        status = copy.stat()
        if not target.is_file() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(target, content)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    return True


def forget(build_dir: Path) -> None:
    """Delete the copies after the change; a rename first keeps a half-deleted folder from being used for `undo`."""
    done = build_dir / f"{_FOLDER}.done"
    shutil.rmtree(done, ignore_errors=True)
    os.rename(build_dir / _FOLDER, done)
    shutil.rmtree(done)
