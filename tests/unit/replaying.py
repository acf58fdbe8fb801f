"""Runs that took place, played again: their events, with the seconds at which they came, from ``tests/data/runs``.

A line has the seconds since the run began, a word, and what belongs to it, between tabs. ``benchmarks/forecast.py``
makes such a file from a run's log.
"""

from __future__ import annotations

import bisect
import gzip
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from groundwork import events
from groundwork.package_id import PackageId
from groundwork.run_state import InFlight, TimeLeft
from megabuild.forecast.forecast import Forecast
from megabuild.forecast.known import Known
from megabuild.forecast.outline import Outline, Package
from megabuild.forecast.share import Share

Happened: TypeAlias = "list[tuple[float, events.Event]]"


@dataclass(frozen=True, kw_only=True)
class Got(events.Event):
    """The run got so much of the machine from then on."""

    share: float


@dataclass(frozen=True, kw_only=True)
class Began(events.Event):
    """A compiler began with an object."""

    name: str


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


def read(path: Path) -> Happened:
    """Read a file."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    return sorted(_events(text), key=lambda one: one[0])


def outline(happened: Happened, *, jobs: int = 2, cores: int = 2) -> Outline:
    """Return what a run had to do that did it."""
    built = [event.package for _, event in happened if isinstance(event, events.PackageBuilt)]
    staged = any(
        isinstance(event, events.PhaseStarted) and event.package == "staging" for _, event in happened
    )
    packages = tuple(
        Package(name=one.name, label=one.label, python=one.kind.removeprefix("py")) for one in built
    )
    return Outline(packages=packages, staged=staged, jobs=jobs, cores=cores)


def play(happened: Happened, todo: Outline, known: Known) -> Played:
    """Play a run, asking every second how long it will take."""
    now = 0.0
    share = _Share() if any(isinstance(event, Got) for _, event in happened) else None
    forecast = Forecast(todo, known, clock=lambda: now, own_clock=lambda: 0.0, share=share)
    said = []
    asked = 0.0
    flying: dict[str, float] = {}
    for when, event in happened:
        while asked < when:
            now = asked
            if left := forecast.left():
                said.append((now, left))
            asked += 1.0
        now = when
        if isinstance(event, Got) and share is not None:
            share.now, share.known = event.share or share.now, True
        if isinstance(event, events.Progress):
            flying.pop(event.step_name, None)
        elif isinstance(event, Began):
            flying[event.name] = now
            offset = time.time() - now
            objects = [InFlight(name=name, since=since + offset) for name, since in flying.items()]
            event = events.Measured(objects=objects)
        forecast.take(event)
    return Played(forecast=forecast, seconds=happened[-1][0], said=said)


def steady(happened: Happened, *, slower: float = 1.0) -> Happened:
    """Return a run as it would have been with the same part of the machine all the time, which it does not know."""
    points, clocks, share = [0.0], [0.0], 1.0
    known = [event.share for _, event in happened if isinstance(event, Got) and event.share]
    share = known[0] if known else 1.0
    for when, event in happened:
        clocks.append(clocks[-1] + (when - points[-1]) * share * slower)
        points.append(when)
        if isinstance(event, Got):
            share = event.share or share

    def at(when: float) -> float:
        place = max(1, bisect.bisect_left(points, when))
        before, after = points[place - 1], points[min(place, len(points) - 1)]
        part = (when - before) / (after - before) if after > before else 0.0
        return clocks[place - 1] + part * (clocks[min(place, len(points) - 1)] - clocks[place - 1])

    def moved(when: float, event: events.Event) -> events.Event:
        if isinstance(event, (events.Progress, events.TestEnded)):
            return replace(event, seconds=at(when) - at(when - event.seconds))
        return event

    return [(at(when), moved(when, event)) for when, event in happened if not isinstance(event, Got)]


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
                if rest[4:] and rest[4] and rest[3].endswith(".o"):
                    yield float(when) - float(rest[4]), Began(name=rest[3])
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
