"""How long a run will still take: by what the last run of its config took from the same point on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping

from groundwork import events
from groundwork.run_state import TimeLeft

#: Share of the last run's length after which its pace is replaced by that of this run.
_MEMORY = 0.15
#: The range that is shown around the likely time.
_LEAST, _MOST = 0.75, 1.35


class Milestones:
    """Names the points of a run: phases, scripts, packages, tests, and each fortieth of ninja's steps by those left."""

    def __init__(self) -> None:
        self._script = self._phase = "staging"
        self._seen: Counter[str] = Counter()
        self._total = 0

    def of(self, event: events.Event) -> str | None:
        """Return the point that is reached with an event, or None."""
        match event:
            case events.Progress():
                self._total = max(self._total, event.total)
                step, left = max(1, self._total // 40), event.total - event.done
                key = f"{self._script} {self._phase}"
                return f"{key} {left} left #{self._seen[key]}" if left % step == 0 else None
            case events.PackageStarted():
                self._script = event.package.name
            case events.PhaseStarted():
                self._phase, self._total = event.phase, 0
            case events.PackageBuilt():
                return self._counted(f"built {event.package.name}")
            case events.TestEnded():
                return self._counted(f"tested {event.name.split()[0]}")
            case events.TaskEnded():
                return self._counted(f"task {event.task}")
            case _:
                return None
        return self._counted(f"{self._script} {self._phase}")

    def _counted(self, key: str) -> str:
        self._seen[key] += 1
        return f"{key} #{self._seen[key]}"


class Pace:
    """Compares a run with the one before: the seconds at which that reached each point, and its length."""

    def __init__(
        self, before: Mapping[str, float], length: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._before, self._length, self._clock = before, length, clock
        self._began = clock()
        self._names = Milestones()
        self._then = self._now = 0.0  # seconds at the last point that both runs have reached
        self._pace = 1.0
        self.passed: dict[str, float] = {}  #: the seconds at which this run reached each point

    @property
    def seconds(self) -> float:
        """Seconds since the build began, its preparation left out."""
        return self._clock() - self._began

    def take(self, event: events.Event) -> None:
        """Take an event of the run."""
        name = self._names.of(event)
        if name is None:
            return
        now = self._clock() - self._began
        self.passed.setdefault(name, now)
        then = self._before.get(name, 0.0)
        if then > self._then:
            share = min(1.0, (then - self._then) / (_MEMORY * self._length))
            self._pace += share * ((now - self._now) / (then - self._then) - self._pace)
            self._then, self._now = then, now

    def left(self) -> TimeLeft | None:
        """Return the time left; None where no run of this config has ended well here."""
        if not self._length:
            return None
        since = self._clock() - self._began - self._now
        likely = max(1.0, (self._length - self._then) * self._pace - since)
        return TimeLeft(
            likely=likely, earliest=_LEAST * likely, latest=_MOST * likely, done=self._then / self._length
        )
