"""Runs that took place, played again: their events, with the seconds at which they came, from ``tests/data/runs``.

A line has the seconds since the run began, a word, and what belongs to it, between tabs. ``benchmarks/forecast.py``
makes such a file from a run's log.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from groundwork import events
from groundwork.package_id import PackageId
from groundwork.run_state import TimeLeft
from megabuild.forecast.forecast import Forecast
from megabuild.forecast.known import Known
from megabuild.forecast.outline import Outline, Package
from megabuild.forecast.share import Share


@dataclass(frozen=True, kw_only=True)
class Got(events.Event):
    """The run got so much of the machine from then on."""

    share: float


class _Share(Share):
    """As it was then."""

    def __init__(self) -> None:
        super().__init__(1)
        self.now = 1.0

    def sample(self, now: float, wanted: int) -> None:
        """Look at nothing of today."""


@dataclass(frozen=True, kw_only=True)
class Played:
    """A run, with what was said of it at every second."""

    forecast: Forecast
    seconds: float
    said: list[tuple[float, TimeLeft]]

    def at(self, share: float) -> tuple[float, TimeLeft]:
        """Return what was truly left when a share of the work was done, and what was said of it."""
        found = next((when, left) for when, left in self.said if left.done >= share)
        return self.seconds - found[0], found[1]


def read(path: Path) -> list[tuple[float, events.Event]]:
    """Read a file."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    return list(_events(text))


def outline(happened: list[tuple[float, events.Event]], *, jobs: int = 2, cores: int = 2) -> Outline:
    """Return what a run had to do that did it."""
    built = [event.package for _, event in happened if isinstance(event, events.PackageBuilt)]
    staged = any(
        isinstance(event, events.PhaseStarted) and event.package == "staging" for _, event in happened
    )
    packages = tuple(
        Package(name=one.name, label=one.label, python=one.kind.removeprefix("py")) for one in built
    )
    return Outline(packages=packages, staged=staged, jobs=jobs, cores=cores)


def play(happened: list[tuple[float, events.Event]], todo: Outline, known: Known) -> Played:
    """Play a run, asking every second how long it will take."""
    now = 0.0
    share = _Share() if any(isinstance(event, Got) for _, event in happened) else None
    forecast = Forecast(todo, known, clock=lambda: now, share=share)
    said = []
    asked = 0.0
    for when, event in happened:
        while asked < when:
            now = asked
            if left := forecast.left():
                said.append((now, left))
            asked += 1.0
        now = when
        if isinstance(event, Got) and share is not None:
            share.now, share.known = event.share or share.now, True
        forecast.take(event)
    return Played(forecast=forecast, seconds=happened[-1][0], said=said)


def _events(text: str) -> Iterator[tuple[float, events.Event]]:
    for line in text.splitlines():
        when, word, *rest = line.split("\t")
        match word:
            case "phase":
                event: events.Event = events.PhaseStarted(phase=rest[0], package=rest[1], python=rest[2])
            case "step":
                event = events.Progress(
                    phase="", package="", done=int(rest[0]), total=int(rest[1]), seconds=float(rest[2]),
                    eta_seconds=None, step_name=rest[3],
                )  # fmt: skip
            case "script":
                event = events.PackageStarted(package=PackageId(*rest[:3]), python="")
            case "built":
                event = events.PackageBuilt(package=PackageId(*rest[:3]), seconds=0.0)
            case "test":
                event = events.TestRun(name=rest[0])
            case "tested":
                event = events.TestEnded(name=rest[0], seconds=float(rest[1]), passed=rest[2] == "True")
            case "share":
                event = Got(share=float(rest[0]))
            case _:
                event = events.Warned(message=word)
        yield float(when), event
