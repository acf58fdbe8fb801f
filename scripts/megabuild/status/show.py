"""The status of runs as lines and as a document."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from groundwork.errors import BuildError, IntegrityError
from groundwork.result import Result
from groundwork.text import UNICODE, counted, display, duration, plain, size
from megabuild.status.reading import LastRun
from megabuild.status.record import Activity, RunRecord

_DAY = 20 * 3600.0
_MOST_ROWS = 8
_INDENT = "  "
_RESUME = f"{_INDENT}run the same command again to continue"


def run_line(record: RunRecord, now: float) -> str:
    """Return the line of the whole run: ``building, 3:07 min so far, 22 min left, ends 18:40``."""
    parts = [record.status, f"{duration(max(0.0, now - record.began))} so far"]
    if record.seconds_left is not None:
        left = max(0.0, record.seconds_left - max(0.0, now - record.updated))
        parts += [f"{duration(left)} left", f"ends {clock(now + left, now)}"]
    return ", ".join(parts)


def activity_line(activity: Activity, now: float, *, rate: bool = False) -> str:
    """Return the line of an activity: how far it is and since when; ``rate``: with the time left at its own rate."""
    went = max(0.0, now - activity.since)
    done, total = activity.done, activity.total
    counts = (
        f" {size(done)} of {size(total)}" if activity.unit == "bytes" else f" {done}/{total}" if total else ""
    )
    left = ""
    if (rate or activity.unit) and 0 < done < total and went > 1:
        left = f", {duration(went * (total - done) / done)} left"
    return f"{plain(activity.what)}{counts}, {duration(went)}{left}"


def figures(record: RunRecord) -> str:
    """Return how many packages are done, and what the run takes of the machine."""
    parts = [_packages(record)] if record.packages else []
    parts += [f"memory {size(record.memory)} of {size(record.memory_most)}"] if record.memory else []
    parts += [f"disk {size(record.disk_free)} free"] if record.disk_free else []
    return ", ".join(parts)


def _packages(record: RunRecord) -> str:
    done = sum(state in ("there", "published") for state in record.packages.values())
    return f"{done} of {counted(len(record.packages), 'package')} published"


def record_lines(record: RunRecord, now: float) -> list[str]:
    """Return the lines of a run in progress: the whole, what goes on, and what it takes."""
    rows = [
        activity_line(row, now, rate=record.seconds_left is None) for row in record.activities[:_MOST_ROWS]
    ]
    more = len(record.activities) - len(rows)
    rows += [f"and {more} more"] if more > 0 else []
    return [run_line(record, now), *rows, figures(record)]


def place(record: RunRecord) -> str:
    """Return how far a run has got: ``at 148 of 1,614 (libtorch: compile)``."""
    for activity in record.activities:
        if activity.total:
            return f"at {activity.done:,} of {activity.total:,} ({plain(activity.what)})"
    return f"at {plain(record.activities[0].what)}" if record.activities else f"while {plain(record.status)}"


def run_lines(run: LastRun, width: int, now: float) -> list[str]:
    """Return the lines on one run."""
    record, name = run.record, plain(run.name)
    if record is None:
        return [f"{name}: {run.trouble}"]
    log = [f"{_INDENT}log: {display(run.log)}"] if run.log else []
    if run.standing == "died":
        last = [f"{_INDENT}last line of the log: {run.last_line}"] if run.last_line else []
        return [f"{name}: {_died(record, now)}", *last, *log, _RESUME]
    if run.standing == "ended":
        code = f", exit code {record.exit_code}" if record.exit_code else ""
        took = f"{plain(record.status)} after {duration(record.updated - record.began)}"
        error = "" if record.status == "interrupted" else plain(record.error)
        lost = f", {run.lost} removed since" if run.lost else ""
        return [
            f"{name}: {took}{code}, {clock(record.updated, now)}",
            *textwrap.wrap(
                error, width, initial_indent=_INDENT, subsequent_indent=_INDENT * 2, max_lines=_MOST_ROWS
            ),
            f"{_INDENT}{_packages(record)}{lost}",
            *log,
            *([_RESUME] if record.status == "interrupted" else []),
        ]
    head = f"process {record.pid} on {plain(record.host)}, since {clock(record.began, now)}"
    if run.standing == "unknown":
        head = f"no news from {plain(record.host)} since {clock(record.updated, now)}: it may still run there"
    rows = (_INDENT + line for line in record_lines(record, now))
    return [f"{name}: {head}", *(_cut(line, width) for line in rows), *log]


def _died(record: RunRecord, now: float) -> str:
    return f"died {place(record)}, {clock(record.updated, now)}"


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + UNICODE.cut


def status_result(runs: Sequence[LastRun], width: int, now: float, *, followed: bool = False) -> Result:
    """Return the command's result; ``followed``: its exit code is that of the first run that failed.

    Else it is 0 whatever became of them, unless a record cannot be read.
    """
    lines = [line for run in runs for line in ["", *run_lines(run, width, now)]]
    codes = (_exit_code(run) if followed or run.record is None else 0 for run in runs)
    return Result(
        format="status",
        format_version=2,
        document={"runs": [_document(run) for run in runs]},
        lines=lines[1:] or ["no run has left a state here"],
        exit_code=next(filter(None, codes), 0),
    )


def changes(before: Mapping[str, LastRun], runs: Sequence[LastRun], now: float) -> Iterator[str]:
    """Give a line for every phase, package and end that is new in runs in progress."""
    for run in runs:
        former = before.get(run.name)
        record, past = run.record, former.record if former else None
        if record is None or "running" not in (run.standing, former and former.standing):
            continue
        known = {activity.what for activity in past.activities} if past else set()
        news = (
            [record.status]
            if run.standing == "running" and (not past or past.status != record.status)
            else []
        )
        news += [activity.what for activity in record.activities if activity.what not in known]
        states = past.packages if past else record.packages
        news += [
            f"{label}: {state}" for label, state in record.packages.items() if states.get(label) != state
        ]
        if run.standing in ("died", "ended"):
            news.append(_died(record, now) if run.standing == "died" else record.status)
        for text in news:
            yield f"{clock(record.updated, now, seconds=True)} {plain(run.name)}: {plain(text)}"


def clock(point: float, now: float, *, seconds: bool = False) -> str:
    """Return a point in time by this machine's clock, with its day where that is not today."""
    form = "%H:%M:%S" if seconds else "%H:%M"
    try:
        return time.strftime(form if abs(now - point) < _DAY else f"%d %b %Y {form}", time.localtime(point))
    except (OverflowError, ValueError, OSError):  # of an edited file
        return "?"


def _exit_code(run: LastRun) -> int:
    if run.record is None:
        return IntegrityError.exit_code
    return BuildError.exit_code if run.standing in ("died", "unknown") else run.record.exit_code or 0


def _document(run: LastRun) -> dict[str, object]:
    return {
        "name": run.name,
        "folder": str(run.folder),
        "standing": run.standing,
        "trouble": run.trouble,
        "log": str(run.log) if run.log else None,
        "last_line": run.last_line,
        "removed_packages": run.lost,
        "state": msgspec.to_builtins(run.record) if run.record else None,
    }
