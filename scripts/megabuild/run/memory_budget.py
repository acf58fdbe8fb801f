"""The compile jobs of PyTorch's task, and the memory that its compilers share."""

from __future__ import annotations

from dataclasses import replace

from groundwork.resources.jobs import Budget
from megabuild.plan import object_memory
from megabuild.plan.limits import Limits
from megabuild.plan.plan import Plan


class MemoryBudget(Budget):
    """Jobs of one task, of which heavy objects get the memory that ``limits`` say."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(lambda: plan.jobs)
        self.limits: Limits = plan.limits
        self._options = plan.options

    def halve(self) -> int:
        """Narrow what ran out of memory: heavy objects if it was only these that were killed, else all jobs."""
        compiled = object_memory.noted(self._options.state)
        killed = frozenset(one.name for one in compiled if not one.ended_well)
        only_heavy = bool(killed) and all(self.limits.is_heavy(name) for name in killed)
        object_memory.keep(self._options, compiled, doubled=killed)
        narrowed = self.limits.narrowed() if only_heavy else None
        if narrowed is None:
            narrowed = replace(self.limits, jobs=super().halve(), light=self.limits.light // 2)
        self.limits = replace(narrowed, known=object_memory.read(self._options))
        return self.limits.jobs
