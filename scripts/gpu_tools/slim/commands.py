"""`megabuild slim`: a function for each thing that it does, which returns the command's result."""

from __future__ import annotations

import errno
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath

from gpu_tools.sizes.installed import is_environment
from gpu_tools.slim.backup import Backup, hold_backup
from gpu_tools.slim.check import Check
from gpu_tools.slim.contents import BACKUP, Note, scan
from gpu_tools.slim.plan import SlimPlan, make_plan
from gpu_tools.slim.repack import repack, unpack_package
from gpu_tools.slim.report import check_lines, plan_lines
from gpu_tools.slim.steps import SlimRequest
from groundwork.errors import OutOfSpaceError, UsageError, VerdictError, of_system
from groundwork.result import Result
from groundwork.text import counted, size, wrapped


def check_subject(subject: Path, *, in_place: bool, writes: bool) -> None:
    """Refuse what cannot be slimmed, or not in this way, before anything is read.

    Raises UsageError: It is a folder of something else; a package in place; or a copy of an environment.
    """
    if not is_environment(subject):
        if subject.is_dir():
            raise UsageError(
                f"{subject} is not an environment",
                "give a venv, a conda environment, or a .whl or .conda file",
            )
        if in_place:
            raise UsageError("a package is not changed in place", "--output DIR writes a new one")
    elif writes:
        raise UsageError("an environment is slimmed in place", f"copy it: cp -a {subject} DIR; then --apply")
    elif not in_place and (subject / BACKUP).is_dir():
        raise UsageError(
            f"{subject} is slimmed already", "--undo restores it first; --apply starts with the originals"
        )


def plan(subject: Path, request: SlimRequest, note: Note) -> Result:
    """Say what each step would give and cost."""
    if is_environment(subject):
        steps = make_plan(scan(subject, name=str(subject)), request, note)
    else:
        with unpack_package(subject) as contents:
            steps = make_plan(contents, request, note)
    how = "--apply does it in place" if steps.contents.kind == "environment" else "--output DIR writes a copy"
    return _result("planned", steps, [f"nothing was touched: {how}"])


def apply(
    root: Path, request: SlimRequest, note: Note, *, checks: Sequence[str] | None, keep_originals: bool
) -> Result:
    """Make an environment smaller in place. An earlier slimming is undone first.

    All new files are written and on the disk before anything is touched; what then happens is renaming. The environment
    is tried before and after, unless ``checks``, further commands, are None: if it fails, everything is put back. The
    originals are kept, or forgotten.

    Raises BusyError: Another process is slimming this environment.
    Raises VerdictError: An earlier slimming cannot be undone as a whole.
    Raises OutOfSpaceError: The disk has no room for the new files; the originals are in place.
    Raises VerdictError: Something does not work any more; everything was put back.
    """
    check = None if checks is None else Check(root, checks, note)
    with hold_backup(root) as backup:
        _put_back(backup, root)
        try:
            steps = make_plan(scan(root, name=str(root)), request, note, into=backup.new)
        except OSError as error:
            if isinstance(of_system(error), OutOfSpaceError) or error.errno == errno.EDQUOT:
                raise OutOfSpaceError(
                    f"{root}: the disk has no room for the smaller libraries beside the originals",
                    "the originals are in place; free some space",
                ) from error
            raise
        changes = bool(steps.gone or steps.new)
        if changes:
            if check:
                check.before(steps.contents, steps.gone)
            note("putting the new files in place")
            backup.commit(steps)
            try:
                if check:
                    check.after()
            except BaseException:
                backup.put_back()
                raise
            if not keep_originals:
                backup.forget()
    command = f"megabuild slim {shlex.quote(str(root))}"
    lines = check_lines(check.result) if check else []
    if not changes:
        lines += [f"{root} is as it was: nothing can be taken away"]
    elif not keep_originals:
        lines += ["the originals are deleted: there is no way back"]
    else:
        lines += wrapped(f"the originals are kept in {root / BACKUP} until they are restored or deleted:")
        lines += [
            f"  {command} --undo",
            f"  {command} --forget",
            "Running programs keep the files they loaded.",
        ]
    return _result("applied", steps, lines, checked=asdict(check.result) if check else None)


def write(subject: Path, folder: Path, request: SlimRequest, note: Note) -> Result:
    """Write a smaller copy of a package into a folder."""
    steps, file = repack(subject, folder, request, note)
    before, after = subject.stat().st_size, file.stat().st_size
    lines = [f"written to {file}", f"to download: {size(before)}, now {size(after)}"]
    return _result("written", steps, lines, output=str(file), download=[before, after])


def undo(root: Path) -> Result:
    """Put all originals back.

    Raises UsageError: Nothing was slimmed in place.
    Raises VerdictError: Some could not be put back; what there is of these is kept.
    """
    _require_backup(root)
    with hold_backup(root) as backup:
        count = _put_back(backup, root)
    lines = wrapped(f"{counted(count, 'file')} put back; {root} is as it was")
    return Result(format="slim", document={"state": "undone", "restored": count}, lines=lines)


def _put_back(backup: Backup, root: Path) -> int:
    count, left = backup.put_back()
    if left:
        lists = (PurePosixPath(file.record or file.path) for file in left)
        packages = dict.fromkeys(path.parent.name if path.name == "RECORD" else path.stem for path in lists)
        raise VerdictError(
            f"{root}: {counted(count, 'file')} put back, {len(left)} not, as they were installed anew, changed or "
            f"removed since, or their originals are gone (of {_name_some(packages)}: "
            f"{_name_some(file.path for file in left)})",
            f"the originals that are still there are kept below {root / BACKUP}, under their own paths: take what you "
            "need, or move away what is in their places and undo again; --forget deletes them. What lost its original "
            "comes back by installing its package again",
        )
    return count


def _name_some(names: Iterable[str]) -> str:
    first = [name if name.isprintable() else repr(name) for name in names]
    return ", ".join(first[:3]) + (", …" if len(first) > 3 else "")


def forget(root: Path) -> Result:
    """Delete the originals.

    Raises UsageError: Nothing was slimmed in place.
    Raises PreflightError: The last slimming was cut short.
    """
    _require_backup(root)
    with hold_backup(root) as backup:
        freed = backup.size
        backup.forget()
    lines = [f"{size(freed)} freed; there is no way back now"]
    return Result(format="slim", document={"state": "forgotten", "freed": freed}, lines=lines)


def _require_backup(root: Path) -> None:
    if not (root / BACKUP).is_dir():
        raise UsageError(f"nothing was slimmed in place in {root}", "megabuild slim --apply does that")


def _result(state: str, steps: SlimPlan, lines: Iterable[str], **more: object) -> Result:
    return Result(
        format="slim",
        document={"state": state, **steps.to_json(), **more},
        lines=[*plan_lines(steps, done=state != "planned"), "", *lines],
    )
