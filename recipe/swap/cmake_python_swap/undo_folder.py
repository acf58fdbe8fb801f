"""Keep copies of files of a build folder on disk, from which they are restored later.

Standard library only, CPython >= 3.10. Contents and dates are kept, because ninja compares dates.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from .atomic_file import write_atomically
from .whole_walk import below

#: Name of the copies from which a failed or killed swap is undone.
UNFINISHED = "python-swap.undo"


def prepare(build_dir: Path, files: Iterable[Path], name: str = UNFINISHED) -> None:
    """Copy files of a build folder into its folder ``name``; the copies appear all at once or not at all."""
    temporary = build_dir / f"{name}.new"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    for file in files:
        copy = temporary / file.relative_to(build_dir)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)
    os.rename(temporary, build_dir / name)


def copies(build_dir: Path, name: str = UNFINISHED) -> list[Path]:
    """Return the copied files, sorted; none if there are no copies, or :func:`forget` was called since.

    Raises OSError: A folder of them cannot be read.
    """
    return [copy for copy in sorted(below(build_dir / name)) if copy.is_file()]


def target_of(copy: Path, build_dir: Path, name: str = UNFINISHED) -> Path:
    """Return the path of the file that was copied."""
    return build_dir / copy.relative_to(build_dir / name)


def undo(build_dir: Path) -> bool:
    """Restore the files that `prepare` copied, unless `forget` was called since; return whether there were copies.

    The copies stay until `forget`.
    """
    if not (build_dir / UNFINISHED).is_dir():
        return False
    for copy in copies(build_dir):
        target = target_of(copy, build_dir)
        restore_content(copy, target)
        restore_date(copy, target)
    return True


def restore_content(copy: Path, target: Path) -> None:
    """Write the copied content if the file has another one, or is missing; the file then has the present date."""
    content = copy.read_bytes()
    if target.is_file() and target.read_bytes() == content:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, content)


def restore_date(copy: Path, target: Path) -> None:
    """Set the copied date."""
    status = copy.stat()
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def forget(build_dir: Path, name: str = UNFINISHED) -> None:
    """Delete the copies, if there are any; a rename first keeps a half-deleted folder from being used."""
    if not (build_dir / name).is_dir():
        return
    done = build_dir / f"{name}.done"
    shutil.rmtree(done, ignore_errors=True)
    os.rename(build_dir / name, done)
    shutil.rmtree(done)
