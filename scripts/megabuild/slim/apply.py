"""An environment made smaller in place, and back again."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from filelock import Timeout

from megabuild.errors import BusyError, NotUndoneError, OutOfSpaceError, UsageError, of_system
from megabuild.files import FileLock
from megabuild.slim.aside import LOCK, Aside, Kept, give_to_owner
from megabuild.slim.check import Check
from megabuild.slim.listing import ASIDE, Contents, look
from megabuild.slim.savings import Note, Plan, make_plan
from megabuild.slim.steps import Request
from megabuild.wording import counted


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
                raise
    return plan


def undo(root: Path) -> int:
    """Put all originals back, and return how many there were.

    Raises
    ------
    UsageError
        Nothing was slimmed in place.
    NotUndoneError
        Some could not be put back; what there is of these is kept.
    """
    _there(root)
    with held(root) as aside:
        count = len(aside.originals())
        left = aside.put_back()
        kept, lost = aside.kept(), aside.lost
    happened, remedies = [f"{root}: {counted(count, 'file')} put back"], []
    if kept.files:
        example = f": {_some(left)}" if left else ""
        happened.append(
            f"{kept.files} not ({kept.size / 1e6:,.1f} MB), as they were installed anew, changed or removed since (of "
            f"{_some(kept.packages)}{example})"
        )
        remedies.append(
            f"the originals are kept below {root / ASIDE}, under their own paths: take what you need, or move away "
            "what is in their places and undo again; --forget deletes them"
        )
    if lost:
        packages = dict.fromkeys(one.package for one in lost)
        happened.append(
            f"{len(lost)} not, as their originals are gone (of {_some(packages)}: {_some(one.path for one in lost)})"
        )
        remedies.append("what lost its originals comes back by installing its package again")
    if remedies:
        raise NotUndoneError(", ".join(happened), "; ".join(remedies))
    return count


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
        size = aside.kept().size
        aside.forget()
    return size


def not_back(root: Path) -> Kept:
    """Return what is kept of former slimmings because it could not be put back."""
    return Aside(root).kept(former=True)


def _some(names: Iterable[str]) -> str:
    first = [name if name.isprintable() else repr(name) for name in names]
    return ", ".join(first[:3]) + (", …" if len(first) > 3 else "")


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
    if not folder.is_dir():
        folder.mkdir()
        give_to_owner(folder, root)
        os.utime(root, ns=(before.st_atime_ns, before.st_mtime_ns))
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise BusyError(f"another process is slimming {root}", "wait for it") from None
    give_to_owner(folder / LOCK, root)
    with lock:
        lock.release()  # counted: the context holds it once more
        aside = Aside(root)
        aside.begin()
        try:
            yield aside
        finally:
            if not aside.applied:
                aside.remove()
