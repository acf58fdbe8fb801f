"""An environment made smaller: in place, and back again, or as a copy in another folder."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path

from gpu_tools.slim.backup import Backup, hold_backup
from gpu_tools.slim.check import Check
from gpu_tools.slim.listing import Contents, Note, scan
from gpu_tools.slim.manifest import Touched
from gpu_tools.slim.savings import SlimPlan, make_plan
from gpu_tools.slim.steps import SlimRequest
from groundwork.errors import OutOfSpaceError, UsageError, VerdictError, of_system


def list_environment(root: Path, *, follow: bool = False) -> Contents:
    """Return what an environment holds; what was slimmed in place counts as it was before. ``follow`` is for `scan`."""
    return scan(root, name=str(root), kind="environment", originals=Backup(root).originals(), follow=follow)


def apply(root: Path, request: SlimRequest, note: Note, check: Check | None = None) -> SlimPlan:
    """Make an environment smaller. An earlier slimming is undone on the way, so that this one begins with originals.

    All new files are written and on the disk before anything is touched; what then happens is renaming. The check tries
    the environment before and after: if it fails, or is interrupted, everything is put back.

    Raises BusyError: Another process is slimming this environment.
    Raises VerdictError: An earlier slimming cannot be undone as a whole; nothing was changed.
    Raises OutOfSpaceError: The disk has no room for the new files; nothing was changed.
    Raises VerdictError: Something does not work any more; everything was put back.
    """
    with hold_backup(root) as backup:
        if left := backup.left():
            raise VerdictError(
                f"{root} was slimmed before and cannot be put back whole: {describe_left(left)}; nothing was changed",
                "--undo puts the rest back, --forget then deletes the originals that are left; then slim it again",
            )
        try:
            plan = make_plan(list_environment(root), request, note, into=backup.new)
        except OSError as error:
            if isinstance(of_system(error), OutOfSpaceError) or error.errno == errno.EDQUOT:
                raise OutOfSpaceError(
                    f"{root}: the disk has no room for the smaller libraries beside the originals",
                    "nothing was changed; free some space, or use --output DIR on another disk",
                ) from error
            raise
        backup.put_back()
        if plan.gone or plan.new:
            if check:
                check.before(plan.contents, plan.gone)
            note("putting the new files in place")
            backup.commit(plan)
            try:
                if check:
                    check.after()
            except BaseException:
                backup.put_back()
                raise
    return plan


def describe_left(left: Collection[Touched]) -> str:
    """Say how many files cannot be put back, of which packages, and why."""
    packages = dict.fromkeys(touched.package for touched in left)
    return (
        f"{len(left)} not, as they were installed anew, changed or removed since, or their originals are gone (of "
        f"{_name_some(packages)}: {_name_some(touched.path for touched in left)})"
    )


def _name_some(names: Iterable[str]) -> str:
    first = [name if name.isprintable() else repr(name) for name in names]
    return ", ".join(first[:3]) + (", …" if len(first) > 3 else "")


def copy(root: Path, folder: Path, request: SlimRequest, note: Note) -> SlimPlan:
    """Write a smaller copy into a new or empty folder. Packages' files that are links to places outside become files.

    Raises UsageError: There is something already, or it would lie in the environment itself.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already", "name a new folder: --output DIR")
    if folder.resolve().is_relative_to(root.resolve()):
        raise UsageError(f"{folder} lies in the environment itself", "name a folder elsewhere: --output DIR")
    contents = list_environment(root, follow=True)
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
        _copy_folders(root, beside)
        beside.chmod(stat.S_IMODE(root.stat().st_mode))
        if folder.exists():
            folder.rmdir()
        beside.rename(folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return plan


def _copy_folders(root: Path, copy: Path) -> None:
    for at, folders, _ in os.walk(root, topdown=False):
        for name in folders:
            source = Path(at, name)
            target = copy / source.relative_to(root)
            if source.is_symlink() and target.parent.is_dir():
                shutil.copy2(source, target, follow_symlinks=False)
            elif target.is_dir():
                shutil.copystat(source, target)
