"""Shows the status of runs as text and as JSON."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from groundwork.errors import BuildError, IntegrityError
from groundwork.exhaustive import assert_never
from groundwork.result import Result
from groundwork.text import Sign, counted, display, duration, plain, plain_lines, size
from megabuild.status.reading import RunState, Standing, read_missing_tests
from megabuild.status.record import Activity, PackageState, RunRecord, RunStatus

_DAY = 20 * 3600.0
_MOST_ROWS = 8
#: Share of an activity's steps from which on their rate alone tells the time that is left.
_TRUSTED = 0.25
_MOST_ERROR_LINES = 24
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
    elapsed = max(0.0, now - activity.since)
    done = activity.done
    total = activity.total
    counts = ""
    if activity.unit == "bytes":
        counts = f" {size(done)} of {size(total)}"
    elif total:
        counts = f" {done}/{total}"
    left = ""
    if (rate or activity.unit) and 0 < done < total and elapsed > 1:
        left = f", {duration(_seconds_left(activity, elapsed))} left"
    return f"{plain(activity.what)}{counts}, {duration(elapsed)}{left}"


def _seconds_left(activity: Activity, elapsed: float) -> float:
    """Return the seconds that an activity needs by its own rate; at its beginning mostly by the plan's table.

    The steps of a compile are not alike: after 7 % of PyTorch's, their rate told 14 minutes of more than an hour.
    """
    share = activity.done / activity.total
    by_rate = elapsed * (1 - share) / share
    if not activity.expected:
        return by_rate
    trust = min(1.0, share / _TRUSTED)
    by_table = max(0.0, activity.expected - elapsed)
    return trust * by_rate + (1 - trust) * by_table


def figures(record: RunRecord) -> str:
    """Return the number of published packages, the run's memory, and the free disk space."""
    parts = []
    if record.packages:
        parts.append(_packages(record))
    if record.memory:
        parts.append(f"memory {size(record.memory)} of {size(record.memory_most)}")
    if record.disk_free:
        parts.append(f"disk {size(record.disk_free)} free")
    return ", ".join(parts)


def _packages(record: RunRecord) -> str:
    states = list(record.packages.values())
    done = states.count(PackageState.THERE) + states.count(PackageState.PUBLISHED)
    return f"{done} of {counted(len(states), 'package')} published"


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
    name = plain(run.name)
    record = run.record
    if record is None:
        return [f"{name}: {run.trouble}"]
    log = []
    if run.log is not None and run.log.name not in record.error:
        log.append(f"{_INDENT}log: {display(run.log)}")
    match run.standing:
        case Standing.DIED:
            head = f"died {progress_of(record)}, {clock(record.updated, now)}"
            return [f"{name}: {head}", *_test_lines(run), *log, _RESUME]
        case Standing.ENDED:
            lines = [*_end_lines(record), *_test_lines(run), *log, *_resume_lines(record)]
            return [f"{name}: {_end_line(record, now)}", *lines]
        case Standing.RUNNING | Standing.UNREADABLE:
            head = f"process {record.pid} on {plain(record.host)}, since {clock(record.began, now)}"
        case Standing.UNKNOWN:
            last = f"no update from {plain(record.host)} since {clock(record.updated, now)}"
            head = f"{last}; the run may still be active"
        case never:
            assert_never(never)
    rows = [_INDENT + line for line in record_lines(record, now)]
    return [f"{name}: {head}", *rows, *log]


def _end_line(record: RunRecord, now: float) -> str:
    took = f"{record.status.value} after {duration(record.updated - record.began)}"
    code = ""
    if record.exit_code:
        code = f", exit code {record.exit_code}"
    return f"{took}{code}, {clock(record.updated, now)}"


def _end_lines(record: RunRecord) -> list[str]:
    """Return the error of an ended run, and the number of its published packages."""
    lines = []
    if record.error and record.status is not RunStatus.INTERRUPTED:
        error = plain_lines(record.error).split("\n")
        lines = [_INDENT + line for line in error[:_MOST_ERROR_LINES]]
    return [*lines, f"{_INDENT}{_packages(record)}"]


def _test_lines(run: RunState) -> list[str]:
    """Return warnings about packages whose tests failed or never ran; a run in progress may still test them."""
    missing = read_missing_tests(run)
    if missing is None:
        return [
            f"{_INDENT}{Sign.warning} unknown whether tests failed: the records of packages cannot be read"
        ]
    return [_INDENT + plain(line) for line in missing.lines]


def _resume_lines(record: RunRecord) -> list[str]:
    return [_RESUME] if record.status is RunStatus.INTERRUPTED else []


def status_result(runs: Sequence[RunState], now: float, *, followed: bool = False) -> Result:
    """Return the command's result; ``followed``: its exit code is that of the first run that failed.

    Otherwise the exit code is 0, even if runs failed, unless a record cannot be read.
    """
    lines: list[str] = []
    exit_code = 0
    for run in runs:
        lines += ["", *run_lines(run, now)]
        exit_code = exit_code or _exit_code(run, followed=followed)
    return Result(
        format="status",
        format_version=5,
        document={"runs": [_document(run) for run in runs]},
        lines=lines[1:] or ["no run in this folder"],
        exit_code=exit_code,
    )


def _document(run: RunState) -> dict[str, object]:
    missing = read_missing_tests(run)
    return {
        "name": run.name,
        "folder": str(run.folder),
        "standing": run.standing.value,
        "trouble": run.trouble,
        "log": str(run.log) if run.log else None,
        "untested": list(missing.untested) if missing else None,
        "failed_tests": list(missing.failed) if missing else None,
        "state": msgspec.to_builtins(run.record) if run.record else None,
    }


def _exit_code(run: RunState, *, followed: bool) -> int:
    match run.standing:
        case Standing.UNREADABLE:
            return IntegrityError.exit_code
        case _ if not followed:
            return 0
        case Standing.DIED | Standing.UNKNOWN:
            return BuildError.exit_code
        case Standing.RUNNING | Standing.ENDED:
            return (run.record and run.record.exit_code) or 0
        case never:
            assert_never(never)


def clock(point: float, now: float) -> str:
    """Return a local time, with its date if it is more than 20 hours away."""
    form = "%H:%M" if abs(now - point) < _DAY else "%d %b %Y %H:%M"
    try:
        return time.strftime(form, time.localtime(point))
    except (OverflowError, ValueError, OSError):  # an edited record
        return "?"
