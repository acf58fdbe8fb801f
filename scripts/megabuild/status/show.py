"""Shows the status of runs as text and as JSON."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from groundwork.errors import BuildError, IntegrityError
from groundwork.exhaustive import assert_never
from groundwork.result import Result
from groundwork.text import counted, display, duration, plain, plain_lines, size
from megabuild.status.reading import RunState, Standing
from megabuild.status.record import Activity, PackageState, RunRecord, RunStatus

_DAY = 20 * 3600.0
_MOST_ROWS, _MOST_ERROR_LINES = 8, 24
_INDENT = "  "
_RESUME = f"{_INDENT}run the same command again to continue"


def run_line(record: RunRecord, now: float) -> str:
    """Return the line of the whole run: ``building, 3:07 min so far, 22 min left, ends 18:40``."""
    parts = [record.status.value, f"{duration(max(0.0, now - record.began))} so far"]
    if record.seconds_left is not None:
        left = max(0.0, record.seconds_left - max(0.0, now - record.updated))
        parts += [f"{duration(left)} left", f"ends {clock(now + left, now)}"]
    return ", ".join(parts)


def activity_line(activity: Activity, now: float, *, rate: bool = False) -> str:
    """Return the line of an activity: progress and duration; ``rate``: also the time left at its own rate."""
    elapsed, done, total = max(0.0, now - activity.since), activity.done, activity.total
    counts = f" {done}/{total}" if total else ""
    if activity.unit == "bytes":
        counts = f" {size(done)} of {size(total)}"
    left = ""
    if (rate or activity.unit) and 0 < done < total and elapsed > 1:
        left = f", {duration(elapsed * (total - done) / done)} left"
    return f"{plain(activity.what)}{counts}, {duration(elapsed)}{left}"


def figures(record: RunRecord) -> str:
    """Return the number of published packages, the run's memory, and the free disk space."""
    parts = [_packages(record)] if record.packages else []
    parts += [f"memory {size(record.memory)} of {size(record.memory_most)}"] if record.memory else []
    parts += [f"disk {size(record.disk_free)} free"] if record.disk_free else []
    return ", ".join(parts)


def _packages(record: RunRecord) -> str:
    ready = (PackageState.THERE, PackageState.PUBLISHED)
    done = [name for name, state in record.packages.items() if state in ready]
    return f"{len(done)} of {counted(len(record.packages), 'package')} published"


def record_lines(record: RunRecord, now: float) -> list[str]:
    """Return the lines of a run in progress: the run, its first activities, its :func:`figures`."""
    rate = record.seconds_left is None
    rows = [activity_line(row, now, rate=rate) for row in record.activities[:_MOST_ROWS]]
    return [run_line(record, now), *rows, figures(record)]


def progress_of(record: RunRecord) -> str:
    """Return a run's progress: ``at 148 of 1,614 (libtorch: compile)``."""
    for activity in record.activities:
        if activity.total:
            return f"at {activity.done:,} of {activity.total:,} ({plain(activity.what)})"
    if record.activities:
        return f"at {plain(record.activities[0].what)}"
    return f"while {record.status.value}"


def run_lines(run: RunState, now: float) -> list[str]:
    """Return the lines on one run."""
    record, name = run.record, plain(run.name)
    if record is None:
        return [f"{name}: {run.trouble}"]
    log = [f"{_INDENT}log: {display(run.log)}"] if run.log and run.log.name not in record.error else []
    if run.standing is Standing.DIED:
        return [f"{name}: died {progress_of(record)}, {clock(record.updated, now)}", *log, _RESUME]
    if run.standing is Standing.ENDED:
        code = f", exit code {record.exit_code}" if record.exit_code else ""
        took = f"{record.status.value} after {duration(record.updated - record.began)}"
        interrupted = record.status is RunStatus.INTERRUPTED
        error = [] if interrupted else plain_lines(record.error).split("\n")[:_MOST_ERROR_LINES]
        lines = [f"{name}: {took}{code}, {clock(record.updated, now)}"]
        lines += [_INDENT + line for line in error]
        return [*lines, f"{_INDENT}{_packages(record)}", *log, *([_RESUME] if interrupted else [])]
    head = f"process {record.pid} on {plain(record.host)}, since {clock(record.began, now)}"
    if run.standing is Standing.UNKNOWN:
        head = f"no update from {plain(record.host)} since {clock(record.updated, now)}; the run may still be active"
    rows = [_INDENT + line for line in record_lines(record, now)]
    return [f"{name}: {head}", *rows, *log]


def status_result(runs: Sequence[RunState], now: float, *, followed: bool = False) -> Result:
    """Return the command's result; ``followed``: its exit code is that of the first run that failed.

    Otherwise the exit code is 0, even if runs failed, unless a record cannot be read.
    """
    lines = [line for run in runs for line in ["", *run_lines(run, now)]]
    codes = []
    rows = []
    for run in runs:
        codes.append(_exit_code(run, followed=followed))
        rows.append(
            {
                "name": run.name,
                "folder": str(run.folder),
                "standing": run.standing.value,
                "trouble": run.trouble,
                "log": str(run.log) if run.log else None,
                "state": msgspec.to_builtins(run.record) if run.record else None,
            }
        )
    return Result(
        format="status",
        format_version=5,
        document={"runs": rows},
        lines=lines[1:] or ["no run in this folder"],
        exit_code=next(filter(None, codes), 0),
    )


def _exit_code(run: RunState, *, followed: bool) -> int:
    match run.standing:
        case Standing.UNREADABLE:
            return IntegrityError.exit_code
        case Standing.DIED | Standing.UNKNOWN:
            return BuildError.exit_code if followed else 0
        case Standing.RUNNING | Standing.ENDED:
            code = run.record.exit_code if run.record else None
            return code or 0 if followed else 0
        case never:
            assert_never(never)


def clock(point: float, now: float) -> str:
    """Return a local time, with its date if it is more than 20 hours away."""
    form = "%H:%M" if abs(now - point) < _DAY else "%d %b %Y %H:%M"
    try:
        return time.strftime(form, time.localtime(point))
    except (OverflowError, ValueError, OSError):  # an edited record
        return "?"
