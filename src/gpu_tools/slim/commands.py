"""`megabuild slim`: one function per action; each returns the command's result."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path

from gpu_tools.contents import BACKUP, scan
from gpu_tools.file_lists import is_environment
from gpu_tools.slim.backup import Backup, Restored, hold_backup, is_half_forgotten
from gpu_tools.slim.check import Check
from gpu_tools.slim.plan import SlimPlan, make_plan
from gpu_tools.slim.repack import repack
from gpu_tools.slim.slim_report import check_lines, plan_lines
from gpu_tools.slim.steps import SlimRequest
from gpu_tools.unpacked_package import unpack_package
from groundwork.errors import OutOfSpaceError, UsageError, VerdictError, of_system
from groundwork.progress import Notes
from groundwork.result import Result
from groundwork.text import counted, size


class State(str, Enum):
    """What a command did to its subject; the values are those of JSON documents."""

    PLANNED = "planned"
    APPLIED = "applied"
    WRITTEN = "written"
    UNDONE = "undone"
    FORGOTTEN = "forgotten"


#: Files named in a sentence about several.
_NAMED = 3


def check_subject(subject: Path, *, in_place: bool, writes: bool) -> None:
    """Check that a subject can be slimmed in this way, before reading it.

    Raises UsageError: The folder is no environment; a package is to be slimmed in place, or an environment copied.
    """
    if not is_environment(subject):
        if in_place:
            raise UsageError(
                f"{subject}: not an environment; only these are slimmed in place",
                "write a smaller copy of a package with --output DIR",
            )
        return
    if writes:
        raise UsageError(
            f"{subject}: an environment can only be slimmed in place",
            f"copy it, then slim the copy with --apply: cp -a {shlex.quote(str(subject))} DIR",
        )
    if in_place:
        return
    if is_half_forgotten(subject):
        raise _half_forgotten(subject)
    if (subject / BACKUP).is_dir():
        raise UsageError(
            f"{subject}: already slimmed",
            "restore it with --undo, or slim it again from its originals with --apply",
        )


def plan(subject: Path, request: SlimRequest, note: Notes) -> Result:
    """Return the savings and costs of each step; change nothing."""
    if is_environment(subject):
        steps = make_plan(scan(subject, name=str(subject)), request, note)
    else:
        with unpack_package(subject) as (root, kind):
            steps = make_plan(scan(root, name=str(subject), kind=kind), request, note)
    return _result(
        State.PLANNED, steps, ["nothing was changed; continue with --apply (packages: --output DIR)"]
    )


def apply(
    root: Path,
    request: SlimRequest,
    note: Notes,
    *,
    checks: Sequence[str] | None,
    keep_originals: bool,
    command: str = "megabuild slim",
) -> Result:
    """Slim an environment in place, after undoing an earlier slimming.

    All new files are synced to disk before the first original is renamed. ``checks`` are extra commands; None skips
    the imports too. ``command`` starts this program, as users type it.

    Raises BusyError: Another process is slimming this environment.
    Raises VerdictError: An earlier slimming cannot be undone completely, or a check fails and all files are restored.
    Raises OutOfSpaceError: The disk has no space for the new files; no file was changed.
    """
    check = None
    if checks is not None:
        check = Check(root, checks, note)
    with hold_backup(root) as backup:
        restored = _put_back(backup, root)
        if restored.gone:
            note(_dropped(restored))
        steps = _plan_new_files(root, request, note, backup)
        changes = bool(steps.gone or steps.new)
        if changes:
            _replace_files(root, backup, steps, check, note)
            if not keep_originals:
                backup.forget()
    if not changes:
        lines = [f"{root}: nothing to remove; no file was changed"]
    else:
        lines = _applied_lines(root, check, command, keep_originals=keep_originals)
    return _result(State.APPLIED, steps, lines, checked=None if check is None else check.to_json())


def _plan_new_files(root: Path, request: SlimRequest, note: Notes, backup: Backup) -> SlimPlan:
    """Plan the slimming of an environment, and write the new files next to the originals."""
    try:
        return make_plan(scan(root, name=str(root)), request, note, into=backup.new)
    except OSError as error:
        if not isinstance(of_system(error), OutOfSpaceError):
            raise
        raise OutOfSpaceError(
            f"{root}: not enough disk space for the slimmed libraries next to the originals",
            "free disk space, then run the command again; no file was changed",
        ) from error


def _replace_files(root: Path, backup: Backup, steps: SlimPlan, check: Check | None, note: Notes) -> None:
    """Replace and remove the plan's files; restore them if a check fails."""
    if check:
        check.before(steps.contents, steps.gone)
    note(f"replacing {counted(len(steps.new), 'file')} and removing {len(steps.gone)}")
    try:
        backup.commit(steps)
        if check:
            check.after()
    except VerdictError as failure:
        raise _after_failed_check(root, backup, failure) from failure
    except BaseException:
        backup.put_back()
        raise


def _after_failed_check(root: Path, backup: Backup, failure: VerdictError) -> VerdictError:
    """Restore the originals; return the error that names the check and the files that were not restored."""
    try:
        _put_back(backup, root)
    except VerdictError as incomplete:  # a check changed files
        return VerdictError(f"{failure.message}; {incomplete.message}", incomplete.remedy)
    return VerdictError(f"{failure.message}; all original files are restored", failure.remedy)


def _applied_lines(root: Path, check: Check | None, command: str, *, keep_originals: bool) -> list[str]:
    lines = []
    if check:
        lines += check_lines(check)
    if not keep_originals:
        return [*lines, "The originals are deleted; slimming cannot be undone."]
    command += f" {shlex.quote(str(root))}"
    return [
        *lines,
        f"The originals are in {root / BACKUP}. Restore or delete them:",
        f"  {command} --undo",
        f"  {command} --forget",
        "Running programs keep the files they loaded.",
    ]


def write(subject: Path, folder: Path, request: SlimRequest, note: Notes) -> Result:
    """Write a smaller copy of a package into ``folder``."""
    steps, file = repack(subject, folder, request, note)
    before = subject.stat().st_size
    after = file.stat().st_size
    lines = [f"wrote {file}", f"download: {size(before)} before, {size(after)} now"]
    return _result(State.WRITTEN, steps, lines, output=str(file), download=[before, after])


def undo(root: Path) -> Result:
    """Restore all originals.

    Raises UsageError: The environment has no originals, or an interrupted --forget has deleted some.
    Raises VerdictError: Some files could not be restored; their originals are kept.
    """
    _require_backup(root)
    if is_half_forgotten(root):
        raise _half_forgotten(root)
    with hold_backup(root) as backup:
        restored = _put_back(backup, root)
    lines = [f"{root}: restored {counted(restored.count, 'original file')}"]
    if restored.gone:
        lines.append(_dropped(restored))
    return _slim_result({"state": State.UNDONE, "restored": restored.count}, lines)


def _put_back(backup: Backup, root: Path) -> Restored:
    restored = backup.put_back()
    if left := restored.left:
        remedy = "reinstall the packages of these files; --forget ends the slimming"
        if (root / BACKUP / "originals").is_dir():
            remedy = (
                "move the changed files away and run --undo again, or take the originals from "
                f"{root / BACKUP}/originals; reinstall packages without originals; --forget deletes the originals"
            )
        raise VerdictError(
            f"{root}: {counted(restored.count, 'file')} restored, {len(left)} not, because they were changed or "
            f"reinstalled, or have no original ({_name_some(file.path for file in left)})",
            remedy,
        )
    return restored


def _dropped(restored: Restored) -> str:
    return f"deleted the originals of packages that were upgraded or removed: {_name_some(restored.gone)}"


def _name_some(names: Iterable[str]) -> str:
    every = list(names)
    shown = []
    for name in every[:_NAMED]:
        shown.append(name if name.isprintable() else repr(name))
    if len(every) > _NAMED:
        shown.append("…")
    return ", ".join(shown)


def forget(root: Path) -> Result:
    """Delete the originals.

    Raises UsageError: The environment has no originals.
    Raises PreflightError: The last slimming was interrupted.
    """
    _require_backup(root)
    with hold_backup(root) as backup:
        freed = backup.forget()
    lines = [f"deleted the originals: {size(freed)} freed; slimming can no longer be undone"]
    return _slim_result({"state": State.FORGOTTEN, "freed": freed}, lines)


def _half_forgotten(root: Path) -> UsageError:
    return UsageError(
        f"{root}: --forget was interrupted while it deleted the originals; slimming can no longer be undone",
        "delete the remaining originals with --forget",
    )


def _require_backup(root: Path) -> None:
    if not (root / BACKUP).is_dir():
        raise UsageError(
            f"{root}: no originals, not slimmed in place", "check the path; only --apply keeps originals"
        )


def _result(state: State, steps: SlimPlan, lines: Iterable[str], **more: object) -> Result:
    shown = [*plan_lines(steps, done=state is not State.PLANNED), "", *lines]
    return _slim_result({"state": state, **steps.to_json(), **more}, shown)


def _slim_result(document: Mapping[str, object], lines: Sequence[str]) -> Result:
    return Result(format="slim", format_version=2, document=document, lines=lines)
