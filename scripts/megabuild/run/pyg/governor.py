"""How many compilers memory allows, asked again while they run.

Starting figures are measured peaks of one compile with torch's headers (g++ 12, torch 2.13): 2.2 to 2.5 GB per g++, 3.1
GB per nvcc. What is really seen replaces them: more at once, less after a few compiles.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from megabuild.resources.estimate import GB
from megabuild.run.pyg.compilers import Seen

BYTES_PER_GXX = int(2.6 * GB)
BYTES_PER_NVCC = int(3.3 * GB)
#: For the engine, ninja, linkers and tests.
_RESERVE = int(0.5 * GB)
#: Later files may be larger than those seen so far.
_MARGIN = 1.15
_ENOUGH_SEEN = 4
_INTERVAL_SECONDS = 1.0
#: More jobs only after memory was there for so long; fewer at once.
_STEADY_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A number of jobs, and why this one."""

    count: int
    reason: str


class Governor:
    """Keeps the number of jobs within cores and memory.

    Parameters
    ----------
    ceiling:
        Most jobs, whatever memory there is.
    per_job:
        Bytes of one compile, until compiles were seen.
    free:
        Bytes that could be used now.
    look:
        Looks at the compilers that run.
    budget:
        Most bytes that compilers may take together, or None for all that is free.
    clock:
        Seconds that only grow.
    """

    def __init__(
        self,
        *,
        ceiling: int,
        per_job: int,
        free: Callable[[], int],
        look: Callable[[], Seen],
        budget: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ceiling = max(1, ceiling)
        self._per_job = per_job
        self._free = free
        self._look = look
        self._budget = budget
        self._clock = clock
        self._least = 0
        self.seen = Seen()
        self.limit = self._choose()
        self._next = clock() + _INTERVAL_SECONDS
        self._more_since: float | None = None

    def tick(self) -> Limit | None:
        """Look again if it is time to; return the new limit where it has changed."""
        now = self._clock()
        if now < self._next:
            return None
        self._next = now + _INTERVAL_SECONDS
        self.seen = self._look()
        chosen = self._choose()
        if chosen.count <= self.limit.count:
            self._more_since = None
            if chosen.count == self.limit.count:
                return None
        else:
            self._more_since = now if self._more_since is None else self._more_since
            if now - self._more_since < _STEADY_SECONDS:
                return None
        self._more_since = None
        self.limit = chosen
        return chosen

    def killed(self) -> None:
        """Take note of a compile that was killed for want of memory: the next ones get twice as much room."""
        self._least = self.expected() * 2
        self.limit = self._choose()

    def expected(self) -> int:
        """Bytes that the next compile is expected to take."""
        likely = int(self.seen.peak * _MARGIN)
        if self.seen.finished >= _ENOUGH_SEEN and likely:
            return max(likely, self._per_job // 2, self._least)
        return max(likely, self._per_job, self._least)

    def _choose(self) -> Limit:
        there = self._free() + self.seen.resident
        usable = max(0, (there if self._budget is None else min(there, self._budget)) - _RESERVE)
        each = self.expected()
        fitting = max(1, usable // each)
        if fitting >= self._ceiling:
            return Limit(count=self._ceiling, reason="cores")
        how = "seen" if self.seen.peak * _MARGIN >= each else "expected"
        return Limit(
            count=int(fitting), reason=f"{usable / GB:.1f} GB of memory, {each / GB:.1f} GB {how} per compile"
        )
