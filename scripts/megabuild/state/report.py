"""What `megabuild status` says: as lines, one below the other or one for every change, and as a document."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from groundwork.errors import IntegrityError, KilledError
from groundwork.result import Result
from groundwork.run_state import RunState
from groundwork.text import display
from groundwork.wording import plain
from megabuild.state.lines import state_lines
from megabuild.state.reading import Found

_DAY = 20 * 3600.0
_INDENT = "  "
_RESUME = "run the same command again to continue"


def status_result(found: Sequence[Found], width: int, now: float, *, followed: bool = False) -> Result:
    """Return what the command says of some runs; ``followed`` to their ends, its exit code is that of the
    first one that failed.

    Else it is 0 whatever became of them, unless a state cannot be read.
    """
    lines: list[str] = []
    for one in found:
        lines += [*([""] if lines else []), *found_lines(one, width, now)]
    codes = [_exit_code(one) if followed or one.standing == "unreadable" else 0 for one in found]
    return Result(
        format="status",
        document={"runs": [_document(one) for one in found]},
        lines=lines or ["no run has left a state here"],
        exit_code=next(filter(None, codes), 0),
    )


def found_lines(found: Found, width: int, now: float) -> list[str]:
    """Return the lines on one run."""
    state, name = found.state, plain(found.name)
    if state is None:
        return [f"{name}: {found.trouble}"]
    log = [f"{_INDENT}log: {display(found.log)}"] if found.log else []
    if found.standing == "died":
        last = [f"{_INDENT}last line of the log: {found.last_line}"] if found.last_line else []
        return [f"{name}: {died(state, now)}", *last, *log, f"{_INDENT}{_RESUME}"]
    if found.standing == "ended":
        first, *rest = state_lines(state, width, now)
        code = f", exit code {state.exit_code}" if state.exit_code else ""
        resume = [f"{_INDENT}{_RESUME}"] if state.status == "interrupted" else []
        return [f"{first}{code}, {clock(state.updated, now)}", *rest, *log, *resume]
    shown = [f"{_INDENT}{line}" for line in state_lines(state, width - len(_INDENT), now)]
    if found.standing == "unknown":
        since = clock(state.updated, now)
        heading = f"no word from {plain(state.host)} since {since}; whether it still runs cannot be seen here"
    else:
        heading = f"process {state.pid} on {plain(state.host)}, since {clock(state.began, now)}"
    return [f"{name}: {heading}", *shown, *log]


def died(state: RunState, now: float) -> str:
    """Return where a run was when it was killed."""
    return f"died {place(state)}, {clock(state.updated, now)}"


def place(state: RunState) -> str:
    """Return how far a run has got: ``at 148 of 1,614 (libtorch: compile)``."""
    counted = next((one for one in state.going if one.total), None)
    if counted is not None:
        return f"at {counted.done:,} of {counted.total:,} ({plain(counted.what)})"
    return f"at {plain(state.going[0].what)}" if state.going else f"while {plain(state.status)}"


def changes(before: Mapping[str, Found], found: Sequence[Found], now: float) -> Iterator[str]:
    """Give a line for everything that is no longer as it was in runs that go on, or did: phases, packages, ends."""
    for one in found:
        former = before.get(one.name)
        state, past = one.state, former.state if former else None
        if state is None or "running" not in (one.standing, former and former.standing):
            continue
        name, at = plain(one.name), clock(state.updated, now, seconds=True)
        known = {going.what for going in past.going} if past else set()
        same = past is not None and (past.status, past.note) == (state.status, state.note)
        if one.standing == "running" and not same:
            yield f"{at} {name}: {plain(': '.join(filter(None, (state.status, state.note))))}"
        for going in state.going:
            if going.what not in known:
                yield f"{at} {name}: {plain(going.what)}"
        for label, status in state.packages.items():
            if past is not None and past.packages.get(label) != status:
                yield f"{at} {name}: {plain(label)}: {plain(status)}"
        if one.standing in ("died", "ended"):
            yield f"{at} {name}: {died(state, now) if one.standing == 'died' else plain(state.status)}"


def clock(point: float, now: float, *, seconds: bool = False) -> str:
    """Return a point in time by this machine's clock, with its day where that was not today."""
    try:
        there = time.localtime(point)
    except (OverflowError, ValueError, OSError):  # of a file that somebody has edited
        return "?"
    form = "%H:%M:%S" if seconds else "%H:%M"
    return time.strftime(form if abs(now - point) < _DAY else f"%d %b %Y {form}", there)


def _exit_code(found: Found) -> int:
    if found.state is None:
        return IntegrityError.exit_code
    if found.standing in ("died", "unknown"):
        return KilledError.exit_code
    return found.state.exit_code or 0


def _document(found: Found) -> dict[str, object]:
    return {
        "name": found.name,
        "folder": str(found.folder),
        "standing": found.standing,
        "trouble": found.trouble,
        "log": str(found.log) if found.log else None,
        "last_line": found.last_line,
        "state": asdict(found.state) if found.state else None,
    }
