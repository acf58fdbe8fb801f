"""Measures what a run takes, compares it with the plan's estimate, and records it for the next plan."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import replace

from megabuild.plan import last_run
from megabuild.plan.plan import Plan
from megabuild.run.summary import Summary
from megabuild.status.time_left import TimeLeft

_UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes


class Meter:
    """Measures from the moment it is made: time, and what the programs that this process started took."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._largest = _largest()
        #: programs run in a container: they are not our children, so their usage is unknown
        self.blind = False

    @property
    def seconds(self) -> float:
        """How long it has been."""
        return time.monotonic() - self._began

    def compared(
        self, plan: Plan, summary: Summary, time_left: TimeLeft, *, estimated_seconds: float
    ) -> Summary:
        """Return a summary with what was measured, beside what had been estimated; it is remembered, too."""
        summary = replace(summary, memory=self._memory())
        if summary.ok and plan.compiles_staging:
            run = last_run.LastRun(
                seconds=time_left.seconds,
                passed=time_left.passed,
                memory=summary.memory,
                pythons=plan.rounds,
            )
            last_run.keep(plan.options, run)
        if not summary.ok or not (plan.missing or plan.extensions.missing):
            return summary
        return replace(summary, estimated_seconds=round(estimated_seconds, 1))

    def _memory(self) -> int:
        """Bytes of the largest program so far; 0 where nobody knows, one before us having been larger."""
        largest = _largest()
        return largest if largest > self._largest and not self.blind else 0


def _largest() -> int:
    """Return the bytes of the largest of all programs that were started and have ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * _UNIT
