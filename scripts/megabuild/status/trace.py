"""The trace of a run, in Chrome's format (opens in ui.perfetto.dev and chrome://tracing), and one HTML page from it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from groundwork import files
from groundwork.errors import ConfigError, IntegrityError
from groundwork.text import duration, plain, size
from megabuild.status.status import Span

SUFFIX = ".trace.json"
_NINJA = "ninja"
_MOST_BYTES, _LONGEST_NAME = 64 << 20, 300
#: Narrower spans would be invisible; much narrower ones than the second have no room for a word.
_LEAST_PERCENT, _LEAST_WITH_TEXT = 0.05, 4.0


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


def run_page(folder: Path) -> str:
    """Return the HTML page of the last run with a trace in a config's folder.

    Raises ConfigError: No run has a trace.
    Raises IntegrityError: The trace or its record is damaged.
    """
    import jinja2  # imported here: no other code needs it

    traces = sorted((folder / "runs").glob(f"*{SUFFIX}"))
    if not traces:
        raise ConfigError(f"{folder}: no trace of a run", "build the config first")
    record = traces[-1].with_name(traces[-1].name.removesuffix(SUFFIX) + ".json")
    try:
        events = json.loads(files.read_text(traces[-1]))["traceEvents"]
        run = json.loads(files.read_text(record))
        spans = [event for event in events if event["ph"] == "X"]
        whole = max([1e6 * run["seconds"], *(event["ts"] + event["dur"] for event in spans)])
        lanes = {
            lane["args"]["name"]: [
                {
                    "what": event["name"],
                    "text": event["name"] if 100 * event["dur"] / whole >= _LEAST_WITH_TEXT else "",
                    "took": duration(event["dur"] / 1e6),
                    "left": 100 * max(0, event["ts"]) / whole,
                    "width": 100 * event["dur"] / whole,
                }
                for event in spans
                if event["tid"] == lane["tid"] and 100 * event["dur"] / whole >= _LEAST_PERCENT
            ]
            for lane in events
            if lane["ph"] == "M"
        }
        lanes = {name: visible for name, visible in lanes.items() if visible}
        ticks = [(percent, duration(whole * percent / 1e8)) for percent in (0, 25, 50, 75)]
        loader = jinja2.FileSystemLoader(Path(__file__).parent)
        environment = jinja2.Environment(autoescape=True, loader=loader, undefined=jinja2.StrictUndefined)
        environment.filters |= {"duration": duration, "size": size}
        return environment.get_template("page.html.j2").render(run=run, lanes=lanes, ticks=ticks)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, jinja2.TemplateError) as error:
        raise IntegrityError(
            f"{record}: {type(error).__name__}: {error}", "run the build again to write a new trace"
        ) from error
