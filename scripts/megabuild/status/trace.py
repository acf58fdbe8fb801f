"""The trace of a run, in Chrome's format, which opens in ui.perfetto.dev and chrome://tracing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from groundwork import files
from groundwork.errors import IntegrityError
from groundwork.text import plain
from megabuild.status.status import Span

SUFFIX = ".trace.json"
_NINJA = "ninja"
_MOST_BYTES, _LONGEST_NAME = 64 << 20, 300


def ninja_steps(build: Path, since: float) -> list[Span]:
    """Return the steps that ninja has run in a build folder since a point in time, from its untrusted log."""
    content = b""
    path = build / ".ninja_log"
    with (
        contextlib.suppress(OSError, IntegrityError),
        files.open_regular(path, below=build.parents[1]) as file,
    ):
        content = file.read(_MOST_BYTES)
    steps: dict[tuple[str, str, str], Span] = {}
    for line in content.decode(errors="replace").splitlines()[1:]:
        fields = line.split("\t")
        if len(fields) != 5 or not all(field.isdigit() and len(field) < 20 for field in fields[:3]):
            continue
        start, end, date = int(fields[0]) / 1e3, int(fields[1]) / 1e3, int(fields[2]) / 1e9
        if date >= since and end >= start:
            key = (fields[0], fields[1], fields[4])  # one step may have several outputs
            steps.setdefault(key, Span(_NINJA, plain(fields[3])[:_LONGEST_NAME], date - (end - start), date))
    return sorted(steps.values(), key=lambda step: step.start)


def slowest(steps: Iterable[Span], count: int = 10) -> dict[str, float]:
    """Return the seconds of the slowest steps, by name."""
    longest = sorted(steps, key=lambda step: step.start - step.end)[:count]
    return {step.what: round(step.end - step.start, 1) for step in longest}


def write_trace(path: Path, spans: Sequence[Span], steps: Sequence[Span], began: float) -> None:
    """Write a run's phases, one lane per task, and below them ninja's steps in as few lanes as possible."""
    lanes: dict[str, list[Span]] = {}
    for span in spans:
        lanes.setdefault(span.task, []).append(span)
    rows: list[list[Span]] = []
    for step in steps:  # sorted by their start
        row = next((row for row in rows if row[-1].end <= step.start + 1e-3), None)
        if row is None:
            rows.append([step])
        else:
            row.append(step)
    lanes |= {f"{_NINJA} {number}": row for number, row in enumerate(rows, 1)}
    events: list[dict[str, object]] = []
    for number, (lane, content) in enumerate(lanes.items()):
        head = {"pid": 0, "tid": number}
        events.append({**head, "ph": "M", "name": "thread_name", "args": {"name": lane}})
        for span in content:
            length = {"ts": round(1e6 * (span.start - began)), "dur": round(1e6 * (span.end - span.start))}
            events.append({**head, "ph": "X", "name": span.what, **length})
    files.write(path, msgspec.json.encode({"traceEvents": events}))
