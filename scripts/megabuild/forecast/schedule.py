"""From what is to be done to how long it takes: list scheduling, so that a long last object counts.

Everything takes turns on as many processors as compile jobs and cores allow, tests as well: never are they faster than
the work divided by that number. What compilers wait for memory is not modelled: the number of jobs follows from the
memory already, and where heavy objects wait, ordinary ones run meanwhile ("Memory by object" in
docs/lab/measurements.md).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Part of the work, which begins when all of the one before has ended."""

    pieces: Sequence[float] = ()  #: seconds of what runs side by side, in the order in which it is begun
    #: seconds of what begins as soon as this has ended, and that nothing waits for
    beside: Sequence[float] = ()


def length(work: Iterable[Stretch], processors: int, *, beside: Sequence[float] = ()) -> float:
    """Return how many seconds the work takes; ``beside`` has begun already."""
    free = [0.0] * max(1, processors)
    now = end = 0.0

    def begin(seconds: float) -> float:
        ends = max(now, free[0]) + seconds
        heapq.heapreplace(free, ends)
        return ends

    for seconds in beside:
        end = max(end, begin(seconds))
    for stretch in work:
        now = max([begin(seconds) for seconds in stretch.pieces], default=now)
        end = max(end, now, *(begin(seconds) for seconds in stretch.beside))
    return end
