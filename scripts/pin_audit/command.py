"""The audit command: make a report, show, write and judge it."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

from groundwork.errors import (
    ChangesError,
    IncomparableError,
    Interrupted,
    UnknownError,
    UsageError,
    VerdictError,
)
from groundwork.result import Result
from groundwork.text import counted, meant
from pin_audit.constraints import STATUSES, Status
from pin_audit.make_report import AuditOptions, make
from pin_audit.markdown import changes_markdown, insert, markdown
from pin_audit.report_file import Report, compare, read, result, text, write


def audit(
    options: AuditOptions,
    root: Path,
    *,
    tell: Callable[[str], None],
    progress: Callable[[str], None],
    named: bool = False,
) -> Result:
    """Make a report on the repository `root`, show and write it, and judge it as ``--fail-on`` says.

    Says which repository it is, if that was not `named` and the current folder lies elsewhere.
    """
    wanted = statuses(options.fail_on) if options.fail_on else ()
    if not named and not Path.cwd().is_relative_to(root):
        tell(f"auditing the recipes of {root}")
    try:
        report, warnings = make(options, root, progress=progress)
    except KeyboardInterrupt:
        raise Interrupted("interrupted", "downloads are cached; run it again to continue") from None
    for warning in warnings:
        tell(f"! {warning}")
    if options.write is not None:
        written = insert(options.write, markdown(report, level=3))
        tell(f"{'written' if written else 'in step already'}: {options.write}")
    lines, code = _render(report, options, tell)
    found = [
        f"{audit.target.package}: {name}" for audit in report.audits for name in audit.with_status(wanted)
    ]
    if found:
        tell(f"--fail-on {options.fail_on}: {', '.join(found)}")
        code = VerdictError.exit_code
    elif options.fail_on:
        code = _report_unread(report, options.fail_on, wanted, options.skipped, tell) or code
    return result(report, lines, code)


def statuses(text: str) -> tuple[Status, ...]:
    """Return the statuses of a list with commas between them: ``conflict,recipe-older``; raises UsageError."""
    words = [part.strip().lower().replace(" ", "-").replace("_", "-") for part in text.split(",")]
    for word in words:
        if word not in STATUSES:
            raise UsageError(f"'{word}' is not a status", meant(word, STATUSES))
    return tuple(STATUSES[word] for word in words)


def _report_unread(
    report: Report,
    fail_on: str,
    wanted: tuple[Status, ...],
    skipped: tuple[str, ...],
    tell: Callable[[str], None],
) -> int:
    """Report what --fail-on could not judge; return an exit code if a whole source was not read."""
    unread = {
        name: None
        for audit in report.audits
        for name in audit.not_read()
        if not any(fnmatchcase(name, pattern) for pattern in skipped)
    }
    unknown = sum(len(audit.with_status([Status.UNKNOWN])) for audit in report.audits)
    rows = sum(len(audit.rows) + len(audit.archs) for audit in report.audits)
    if unknown and Status.UNKNOWN not in wanted:
        tell(f"--fail-on {fail_on}: {unknown} of {counted(rows, 'row')} could not be judged")
    if not unread:
        return 0
    tell(
        f"error: --fail-on {fail_on} found nothing, but these were not read: {', '.join(unread)}\n"
        "  run it once with a network, name local files instead (--help), or leave them out: --skip NAME"
    )
    return UnknownError.exit_code


def _render(report: Report, options: AuditOptions, tell: Callable[[str], None]) -> tuple[list[str], int]:
    """Return the lines in the requested form, or write them, and the exit code of --compare."""
    code, output = 0, options.output
    if options.compare is not None:
        old = read(options.compare)
        found = compare(old, report)
        if found.empty:
            code = IncomparableError.exit_code
            tell(
                f"error: nothing from outside this repository was read both in {options.compare} and now\n"
                "  run it once with a network, or name local files instead (--help)"
            )
        elif found.changes or found.unmatched:
            code = ChangesError.exit_code
        if options.form is None and output is None:
            return changes_markdown(found, old.made).splitlines(), code
        tell(f"{counted(len(found.changes), 'cell')} changed since {old.made}")
    if output is not None:
        as_json = options.form == "json" or (options.form is None and output.suffix == ".json")
        write(text(result(report)) if as_json else markdown(report), output)
        tell(f"written: {output}")
        return [], code
    if options.form is None and options.write is not None:
        return [], code
    folded = options.form is None
    return markdown(report, folded=folded, separator="<br>" if options.form else "; ").splitlines(), code
