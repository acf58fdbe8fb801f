"""The compile jobs of PyTorch's task, of which only some may be at heavy objects."""

from __future__ import annotations

from groundwork.jobs import Budget
from megabuild.plan.plan import Plan


class MemoryBudget(Budget):
    """Jobs of one task; both numbers are halved where memory ran out."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(lambda: plan.jobs)
        self.heavy_jobs = plan.heavy_jobs

    def halve(self) -> int:
        """Allow half as many from now on; return how many, or 0 where it was but one."""
        self.heavy_jobs -= self.heavy_jobs // 2
        return super().halve()
