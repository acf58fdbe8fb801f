"""An environment made smaller in place, and back again."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from megabuild.errors import BusyError, OutOfSpaceError, UsageError, of_system
from megabuild.slim.aside import Aside
from megabuild.slim.check import Check
from megabuild.slim.listing import ASIDE, Contents, look
from megabuild.slim.savings import Note, Plan, make_plan
from megabuild.slim.steps import Request


@dataclass(frozen=True, kw_only=True)
class Undone:
    """What undoing did: how many files are back, and the paths left because others changed them since."""

    files: int
    left: tuple[str, ...]


def environment(root: Path, *, follow: bool = False) -> Contents:
    """Look around in an environment; what was slimmed in place counts as it was before. ``follow`` is for `look`."""
    return look(root, name=str(root), kind="environment", aside=Aside(root).originals(), follow=follow)


def apply(root: Path, request: Request, note: Note, check: Check | None = None) -> Plan:
    """Make an environment smaller. An earlier slimming is undone on the way, so that this one begins with originals.

    All new files are written and on the disk before anything is touched; what then happens is renaming.

    Parameters
    ----------
    check:
        Tries the environment before and after; if that fails, or is interrupted, everything is put back.

    Raises
    ------
    BusyError
        Another process is slimming this environment.
    OutOfSpaceError
        The disk has no room for the new files; nothing was changed.
    SlimmedTooFarError
        Something does not work any more; everything was put back.
    """
    with held(root) as aside:
        try:
            plan = make_plan(environment(root), request, note, into=aside.new)
        except OSError as error:
            if isinstance(of_system(error), OutOfSpaceError) or error.errno == errno.EDQUOT:
                raise OutOfSpaceError(
                    f"{root}: the disk has no room for the smaller libraries beside the originals",
                    "nothing was changed; free some space, or use --output DIR on another disk",
                ) from error
            raise
        aside.put_back()
        if plan.gone or plan.new:
            if check:
                check.before(plan.contents, plan.gone)
            note("putting the new files in place")
            aside.commit(plan)
            try:
                if check:
                    check.after()
            except BaseException:
                aside.put_back()
                aside.dissolve()
                raise
    return plan


def undo(root: Path) -> Undone:
    """Put all originals back.

    Raises
    ------
    UsageError
        Nothing was slimmed in place.
    """
    _there(root)
    with held(root) as aside:
        count = len(aside.originals())
        left = aside.put_back()
        aside.dissolve()
    return Undone(files=count, left=tuple(left))


def forget(root: Path) -> int:
    """Delete the originals, and return the bytes they took.

    Raises
    ------
    UsageError
        Nothing was slimmed in place.
    PreflightError
        The last slimming was cut short.
    """
    _there(root)
    with held(root) as aside:
        size = sum(path.lstat().st_size for path in aside.originals().values())
        aside.forget()
    return size


def _there(root: Path) -> None:
    if not (root / ASIDE).is_dir():
        raise UsageError(f"nothing was slimmed in place in {root}", "megabuild slim --apply does that")


@contextlib.contextmanager
def held(root: Path) -> Iterator[Aside]:
    """Hold an environment's folder of originals, which is made if there is none, and removed if nothing came of it.

    Raises
    ------
    BusyError
        Another process is slimming this environment.
    """
    before = root.stat()
    folder = root / ASIDE
    folder.mkdir(exist_ok=True)
    os.utime(root, ns=(before.st_atime_ns, before.st_mtime_ns))
    lock = FileLock(folder / "lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise BusyError(f"another process is slimming {root}", "wait for it") from None
    with lock:
        lock.release()  # counted: the context holds it once more
        aside = Aside(root)
        aside.begin()
        try:
            yield aside
        finally:
            if not aside.applied:
                aside.remove()
