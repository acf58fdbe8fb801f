"""Measures what a run takes, compares it with the plan's estimate, and records it for the next plan."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import replace

from megabuild.plan import object_memory, past_runs
from megabuild.plan.plan import Plan
from megabuild.run.extension import folder
from megabuild.run.summary import Summary

_UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
#: So many of the largest objects are recorded.
_LARGEST = 20


class Meter:
    """Measures from the moment it is made: time, and what the programs that this process started took."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._cpu, self._largest = _used()
        self._pytorch: tuple[float, float, int] | None = None
        #: programs run in a container: they are not our children, so their usage is unknown
        self.blind = False

    @property
    def seconds(self) -> float:
        """How long it has been."""
        return time.monotonic() - self._began

    def pytorch_is_done(self) -> None:
        """Note what PyTorch's part took; the extensions come next."""
        cpu, _ = _used()
        self._pytorch = self.seconds, 0.0 if self.blind else cpu - self._cpu, self._memory()

    def compared(self, plan: Plan, summary: Summary) -> Summary:
        """Return a summary with what was measured; what was done as a whole is compared, and remembered."""
        summary = replace(summary, memory=self._memory(), largest_objects=_remembered(plan))
        whole = summary.staging in ("fresh", "recompile", "none") or not plan.missing
        if not summary.ok or summary.reused or not whole or not (plan.missing or plan.extensions.missing):
            return summary  # nothing was done, or only the rest of something
        foreign = not plan.options.config.torch_version
        of = {one.id: one.python for one in plan.missing if one.python or foreign}
        rows = [row for row in summary.packages if row.package in of]
        pythons, scripts = len(set(of.values())), sum(row.seconds for row in rows)
        if self._pytorch is not None and (summary.staging_seconds or not plan.stages) and pythons:
            seconds, cpu, memory = self._pytorch
            taken = past_runs.Taken(
                jobs=plan.jobs.count,
                pythons=pythons,
                staging=summary.staging_seconds,
                python=round(scripts / pythons, 1),
                rest=round(max(0.0, seconds - summary.staging_seconds - scripts), 1),
                cores=round(cpu / seconds, 2),
                memory=memory,
                disk=summary.disk.peak,
            )
            past_runs.keep(plan.options, taken)
        figures = plan.estimate
        per_job = figures.memory_per_job if plan.missing else 0
        return replace(
            summary,
            estimated_seconds=round((figures.hours + figures.hours_of_extensions) * 3600, 1),
            estimated_memory=max(per_job, figures.memory_of_extensions),
        )

    def _memory(self) -> int:
        """Bytes of the largest program so far; 0 where nobody knows, one before us having been larger."""
        largest = _used()[1]
        return largest if largest > self._largest and not self.blind else 0


def _remembered(plan: Plan) -> dict[str, int]:
    """Keep what PyTorch's objects took for the next build; return the largest of these and of the extensions'."""
    options = plan.options
    compiled = object_memory.noted(options.state) if plan.missing else []
    object_memory.keep(options, compiled)
    for task in plan.extensions.missing:
        compiled += object_memory.noted(folder(options) / task.name)
    return object_memory.largest(compiled, _LARGEST)


def _used() -> tuple[float, int]:
    """Return the CPU seconds of all programs that were started and have ended, and the bytes of the largest."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime, used.ru_maxrss * _UNIT
