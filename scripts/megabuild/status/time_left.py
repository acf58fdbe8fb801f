"""How long a run will still take: compared point by point with the last run of its config."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping

#: Share of the last run's length after which its speed is replaced by that of this run.
_MEMORY = 0.15


class TimeLeft:
    """Compares a run with the one before: the seconds at which that reached each point, and its length."""

    def __init__(
        self, before: Mapping[str, float], length: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._before, self._length, self._clock = before, length, clock
        self._began = clock()
        self._seen: Counter[str] = Counter()
        self._then = self._now = 0.0  # seconds at the last point that both runs have reached
        self._factor = 1.0  # duration of this run's part in relation to that of the last run's
        self.passed: dict[str, float] = {}  #: the seconds at which this run reached each point

    @property
    def seconds(self) -> float:
        """Seconds since the build began, its preparation left out."""
        return self._clock() - self._began

    def reach(self, point: str) -> None:
        """Take a point that the run has reached: the same words again are another point."""
        self._seen[point] += 1
        name, now = f"{point} #{self._seen[point]}", self.seconds
        self.passed[name] = now
        then = self._before.get(name, 0.0)
        if then > self._then:
            share = min(1.0, (then - self._then) / (_MEMORY * self._length))
            self._factor += share * ((now - self._now) / (then - self._then) - self._factor)
            self._then, self._now = then, now

    def step(self, phase: str, done: int, total: int) -> None:
        """Take ninja's counter: every fortieth of its steps is a point, by those left."""
        if (total - done) % max(1, total // 40) == 0:
            self.reach(f"{phase} {total - done} left")

    def left(self) -> tuple[float, float] | None:
        """Return the seconds left and the share that is done; None where no run of this config has ended well here."""
        if not self._length:
            return None
        since = self.seconds - self._now
        return max(1.0, (self._length - self._then) * self._factor - since), self._then / self._length
