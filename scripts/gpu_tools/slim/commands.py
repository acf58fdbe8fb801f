"""`megabuild slim`: a function for each thing that it does, which returns the command's result."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from gpu_tools.sizes.installed import is_environment
from gpu_tools.sizes.packed import find_packages
from gpu_tools.slim import environment
from gpu_tools.slim.backup import hold_backup
from gpu_tools.slim.check import Check
from gpu_tools.slim.listing import BACKUP, Note
from gpu_tools.slim.repack import repack, repack_channel, unpack_package
from gpu_tools.slim.report import check_lines, plan_lines
from gpu_tools.slim.savings import SlimPlan, make_plan
from gpu_tools.slim.steps import SlimRequest
from groundwork.errors import UsageError, VerdictError
from groundwork.result import Result
from groundwork.text import counted, size, table, wrapped


def check_subject(subject: Path, *, in_place: bool, writes: bool) -> None:
    """Refuse what cannot be done with a subject, before anything is read.

    Raises UsageError: It is a folder of something else; or a package or channel, which only becomes smaller as a
        copy.
    """
    if is_environment(subject):
        return
    if subject.is_dir():
        if not find_packages(subject):
            raise UsageError(
                f"{subject} is not an environment or a channel",
                "give a venv, a conda environment, a channel, or a .whl or .conda file",
            )
        if not writes:
            raise UsageError(
                "the packages of a channel are slimmed into another one", "name it: --output DIR"
            )
    if in_place:
        raise UsageError("a package is not changed in place", "--output DIR writes a new one")


def plan(subject: Path, request: SlimRequest, note: Note) -> Result:
    """Say what each step would give and cost."""
    if is_environment(subject):
        made = make_plan(environment.list_environment(subject), request, note)
    else:
        with unpack_package(subject) as contents:
            made = make_plan(contents, request, note)
    return _result("planned", made, ["nothing was touched: --apply does it in place, --output DIR in a copy"])


def apply(
    root: Path, request: SlimRequest, note: Note, *, checks: Sequence[str] | None, keep_originals: bool
) -> Result:
    """Slim an environment in place; None for ``checks``: nothing is tried. The originals are kept, or forgotten."""
    check = None if checks is None else Check(root, checks, note)
    made = environment.apply(root, request, note, check)
    lines = check_lines(check.result) if check else []
    more: dict[str, object] = {"checked": asdict(check.result) if check else None}
    if not keep_originals and (made.gone or made.new):
        forget(root)
        return _result("applied", made, [*lines, "the originals are deleted: there is no way back"], **more)
    if not (made.gone or made.new):
        return _result("applied", made, [*lines, f"{root} is as it was: nothing can be taken away"], **more)
    command = f"megabuild slim {shlex.quote(str(root))}"
    lines += wrapped(
        f"the originals are kept in {root / BACKUP} and take their room until they are put back or deleted:"
    )
    lines += [f"  {command} --undo", f"  {command} --forget"]
    lines += ["Running programs keep the files they loaded."]
    return _result("applied", made, lines, **more)


def write(subject: Path, folder: Path, request: SlimRequest, note: Note, *, for_myself: bool) -> Result:
    """Write a smaller copy of an environment, or of a package or all packages of a channel into a folder."""
    if is_environment(subject):
        made = environment.copy(subject, folder, request, note)
        lines = wrapped(
            f"written to {folder}; programs in bin name {subject}: put the copy there (in a container's next "
            "stage), or use python -m"
        )
        return _result("written", made, lines, output=str(folder))
    if subject.is_dir():
        several = [*repack_channel(find_packages(subject), folder, request, note, for_myself=for_myself)]
        documents = [{**made.to_json(), "output": str(file)} for made, file in several]
        rows = [(file.name, size(made.before), size(made.after)) for made, file in several]
        return Result(
            format="slim",
            document={"state": "written", "packages": documents},
            lines=[*table(("", "before", "now"), rows, right=frozenset({1, 2})), "", f"written to {folder}"],
        )
    made, file = repack(subject, folder, request, note, for_myself=for_myself)
    before, after = subject.stat().st_size, file.stat().st_size
    lines = [f"written to {file}", f"to download: {size(before)}, now {size(after)}"]
    return _result("written", made, lines, output=str(file), download=[before, after])


def undo(root: Path) -> Result:
    """Put all originals back.

    Raises UsageError: Nothing was slimmed in place.
    Raises VerdictError: Some could not be put back; what there is of these is kept.
    """
    _require_backup(root)
    with hold_backup(root) as backup:
        count = len(backup.originals())
        if left := backup.put_back():
            raise VerdictError(
                f"{root}: {counted(count, 'file')} put back, {environment.describe_left(left)}",
                f"the originals that are still there are kept below {root / BACKUP}, under their own paths: take what "
                "you need, or move away what is in their places and undo again; --forget deletes them. What lost its "
                "original comes back by installing its package again",
            )
    lines = wrapped(f"{counted(count, 'file')} put back; {root} is as it was")
    return Result(format="slim", document={"state": "undone", "restored": count}, lines=lines)


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


def _result(state: str, made: SlimPlan, lines: Iterable[str], **more: object) -> Result:
    return Result(
        format="slim",
        document={"state": state, **made.to_json(), **more},
        lines=[*plan_lines(made, done=state != "planned"), "", *lines],
    )
