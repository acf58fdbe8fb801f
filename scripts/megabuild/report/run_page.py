"""The pages of a config's runs: ``runs/<time>.html`` in its folder, and ``report.html`` for the latest one."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from groundwork import events, files
from groundwork.errors import UsageError
from groundwork.redact import Mask, address
from groundwork.resources.machine import measure
from groundwork.result import Result
from groundwork.text import display
from megabuild.plan.plan import Plan
from megabuild.report.page import page
from megabuild.report.recorder import Recorder
from megabuild.report.repeat import command
from megabuild.report.timeline import Head, read

RUNS, LATEST = "runs", "report.html"
TIMELINE = ".timeline.jsonl"
_LOCAL = "a channel made on this machine, of its own programs or of what was downloaded"


class RunPage:
    """Keeps what the page of one run is made from, and makes it in the end; none for a run that had nothing to do."""

    def __init__(self, plan: Plan, log: Path, mask: Mask) -> None:
        self._state = plan.options.state
        name = log.stem.removeprefix(f"{plan.options.run_name}-")
        self._timeline = self._state / RUNS / f"{name}{TIMELINE}"
        self._recorder = None
        if plan.missing or plan.extensions.missing:
            self._recorder = Recorder(self._state, _head(plan, mask), self._timeline, mask)

    def watching(self, reporter: events.Reporter) -> Callable[[events.Event], None]:
        """Return a reporter that notes events and hands them on."""

        def report(event: events.Event, /) -> None:
            if self._recorder is not None:
                self._recorder.take(event)
            reporter(event)

        return report

    def write(self, record: Mapping[str, Any]) -> Path | None:
        """Write the page of what ``run.json`` has; return where it is, None where there is none."""
        if self._recorder is None:
            return None
        self._recorder.end()
        return _write(self._state, self._timeline, record)


def remake(state: Path, name: str) -> Result:
    """Make the page of a config's last run once more, or of one that goes on or was killed, from what it has noted.

    Raises UsageError: No run has noted anything.
    """
    found = sorted((state / RUNS).glob(f"*{TIMELINE}"))
    made = _write(state, found[-1], _record(state, found[-1])) if found else None
    if made is None:
        raise UsageError(
            f"no run of {name} has left anything to make a page of in {state / RUNS}",
            "build it, or name the folder with --output",
        )
    return Result(format="report", document={"page": str(made)}, lines=[display(made)])


def _head(plan: Plan, mask: Mask) -> Head:
    figures, config = plan.estimate, plan.options.config
    what = (
        f"PyTorch {config.torch_version} for {config.platform}" if config.torch_version else config.platform
    )
    return Head(
        began=time.time(),
        config=plan.options.run_name,
        what=what,
        jobs=plan.jobs.count,
        cores=measure().cores,
        estimated=round((figures.hours + figures.hours_of_extensions) * 3600, 1),
        basis=figures.basis,
        downloads=tuple((f"{one.count} {one.what}", one.size) for one in plan.environment.downloads),
        channels=tuple(
            _LOCAL if isinstance(one, Path) else mask(address(one)) for one in plan.environment.channels
        ),
        repeat=mask(command(plan.options)),
    )


def _write(state: Path, timeline: Path, record: Mapping[str, Any]) -> Path | None:
    known = read(timeline)
    if known is None:
        return None
    target = timeline.with_name(timeline.name.removesuffix(TIMELINE) + ".html")
    with contextlib.suppress(OSError):  # a full disk costs the page, never the run
        files.write(target, page(known, record))
        files.write(state / LATEST, target.read_bytes())
        return target
    return None


def _record(state: Path, timeline: Path) -> Mapping[str, Any]:
    """Return the record of the run that a timeline is of: the one whose log has the same time in its name."""
    stamp = timeline.name.removesuffix(TIMELINE)
    for path in (state / RUNS / f"{stamp}.json", state / "run.json"):
        with contextlib.suppress(OSError, ValueError):
            record = json.loads(path.read_bytes())
            if isinstance(record, dict) and str(record.get("log", "")).endswith(f"{stamp}.log"):
                return record
    return {}
