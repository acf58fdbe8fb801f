"""A smaller copy of an environment, in another folder."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

from megabuild.errors import UsageError
from megabuild.slim.apply import environment
from megabuild.slim.savings import Note, Plan, make_plan
from megabuild.slim.steps import Request


def copied(root: Path, folder: Path, request: Request, note: Note) -> Plan:
    """Write a smaller copy of an environment. Packages' files that are links to places outside become files.

    Parameters
    ----------
    folder:
        Where to; nothing or an empty folder.

    Raises
    ------
    UsageError
        There is something already, or it would lie in the environment itself.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already", "name a new folder: --output DIR")
    if folder.resolve().is_relative_to(root.resolve()):
        raise UsageError(f"{folder} lies in the environment itself", "name a folder elsewhere: --output DIR")
    contents = environment(root, follow=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        plan = make_plan(contents, request, note, into=beside)
        note("copying what stays as it is")
        for path, entry in contents.every.items():
            if path not in plan.gone and path not in plan.new:
                target = beside / path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(entry.source, target, follow_symlinks=False)
        _folders(root, beside)
        beside.chmod(stat.S_IMODE(root.stat().st_mode))
        if folder.exists():
            folder.rmdir()
        beside.rename(folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return plan


def names_itself(root: Path) -> list[str]:
    """Return the programs of an environment that hold its path, and so run in that place only."""
    own = os.fsencode(root.absolute())
    found = []
    for path in sorted((root / "bin").glob("*")):
        if (
            path.is_file()
            and not path.is_symlink()
            and path.stat().st_size < 1 << 20
            and own in path.read_bytes()
        ):
            found.append(path.name)
    return found


def _folders(root: Path, copy: Path) -> None:
    """Give folders their modes and dates, and copy links to folders."""
    for at, folders, _ in os.walk(root, topdown=False):
        for name in folders:
            source = Path(at, name)
            target = copy / source.relative_to(root)
            if source.is_symlink() and target.parent.is_dir():
                shutil.copy2(source, target, follow_symlinks=False)
            elif target.is_dir():
                shutil.copystat(source, target)
