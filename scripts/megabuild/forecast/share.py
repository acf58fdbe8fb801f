"""What part of the machine's cores a run gets, beside everything else that wants them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import psutil

from groundwork.resources.processes import tree

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
#: A sample is of so many seconds at least; older ones count for less, by half in so many seconds.
_LEAST_SECONDS, _HALF_LIFE = 5.0, 60.0
#: The rest of the load waits for disks, or has a lower priority: rehearsals at load 5 to 9 got of two cores what a
#: third to three quarters of it would have left them.
_OF_LOAD = 0.5


class Share:
    """Compares CPU seconds of everything that this process has started with those of the machine."""

    def __init__(
        self,
        cores: int,
        *,
        ours: Callable[[], float] | None = None,
        idle: Callable[[], float] | None = None,
    ) -> None:
        self._cores = cores
        self._ours = ours or cpu_seconds
        self._idle = idle or (lambda: float(psutil.cpu_times().idle))
        self._last: tuple[float, float, float] | None = None
        self.known = False
        self.now = at_load(cores, cores)  #: of the cores that it could use, 0 to 1

    def sample(self, now: float, wanted: int) -> None:
        """Look at it, unless it was done just now; ``wanted`` is how many cores could be used since the last time.

        What is idle could have been had: where there is any, nobody takes anything away.
        """
        if self._last is not None and now - self._last[0] < _LEAST_SECONDS:
            return
        ours, idle = self._ours(), self._idle()
        if self._last is not None and ours >= self._last[1] > 0:
            seconds = now - self._last[0]
            had = (ours - self._last[1] + max(0.0, idle - self._last[2])) / seconds
            share = min(1.0, max(0.01, had / max(1, min(self._cores, wanted))))
            weight = 0.5 ** (seconds / _HALF_LIFE)
            self.now = weight * self.now + (1 - weight) * share if self.known else share
            self.known = True
        self._last = now, ours, idle


def at_load(cores: int, wanted: int) -> float:
    """Return the share of as many cores as are wanted that a new run can hope for, by the load that there is."""
    try:
        load = _OF_LOAD * os.getloadavg()[0]
    except OSError:
        return 1.0
    return min(1.0, cores / (wanted + load)) if wanted else 1.0


def cpu_seconds() -> float:
    """Return the CPU seconds of all that this process has started, what has ended among it; 0 where nobody tells."""
    ticks, own = 0, os.getpid()
    for process in tree(own):
        with contextlib.suppress(OSError, ValueError):
            # after the name in brackets, in which anything can be: utime, stime, cutime, cstime are 14 to 17
            fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
            ticks += sum(map(int, fields[13 if process.name == str(own) else 11 : 15]))
    return ticks / _TICKS
