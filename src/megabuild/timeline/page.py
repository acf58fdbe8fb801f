"""Writes the pictures of runs as one HTML page, which needs no network and runs no script.

Builds can choose the names of files and phases: every text on the page is plain and escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

from groundwork import files
from groundwork.text import counted, duration, plain, size
from megabuild.status.reading import RunState
from megabuild.status.show import clock, run_lines
from megabuild.timeline.picture import draw_pictures
from megabuild.timeline.run_facts import RunFacts, StepKind, read_run_facts

_TEMPLATE = "page.html.j2"
_WORDS = {
    StepKind.COMPILED: "compiled",
    StepKind.CACHED: "from the object cache",
    StepKind.OBJECT: "compiled or from the cache",
    StepKind.OTHER: "links and others",
    StepKind.UNFINISHED: "unfinished",
}


def write_page(runs: Sequence[RunState], path: Path, now: float) -> None:
    """Write the page of some runs."""
    files.write(path, make_page(runs, now))


def make_page(runs: Sequence[RunState], now: float) -> str:
    """Return the page of some runs, whose records have been read."""
    known: list[RunFacts] = []
    results: dict[str, list[str]] = {}
    unreadable: list[str] = []
    for run in runs:
        facts = read_run_facts(run, now)
        if facts is not None:
            known.append(facts)
        results[run.name] = _result(run, now)
        if run.record is None:
            unreadable += run_lines(run, now)
    return _template().render(
        pictures=draw_pictures(known, results),
        unreadable=unreadable,
        made=clock(now, now),
        now=now,
        many=len(known) > 1,
    )


def _result(run: RunState, now: float) -> list[str]:
    """Return the lines of the status on a run, without its name."""
    first, *others = run_lines(run, now)
    lines: list[str] = []
    for line in (first.removeprefix(f"{plain(run.name)}: "), *others):
        text = line.strip()
        if text:
            lines.append(text)
    return lines


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=_harmless,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "duration": duration,
        "size": size,
        "percent": _percent,
        "hours": _core_hours,
        "short": _short,
    }
    environment.globals |= {"clock": clock, "counted": counted, "words": _WORDS}
    return environment.get_template(_TEMPLATE)


def _harmless(value: object) -> object:
    """Return a text without control characters; Jinja escapes it afterwards."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return plain(value)
    return value


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _short(path: str) -> str:
    """Return the last two parts of a path."""
    return "/".join(path.split("/")[-2:])


def _core_hours(core_seconds: float) -> str:
    """Format a product of cores and time: ``3.2 core hours``, ``12.0 core minutes``, ``2.1 core seconds``."""
    if core_seconds >= 2 * 3600:
        return f"{core_seconds / 3600:.1f} core hours"
    if core_seconds >= 2 * 60:
        return f"{core_seconds / 60:.1f} core minutes"
    return f"{core_seconds:.1f} core seconds"
