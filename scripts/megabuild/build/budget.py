"""Compile jobs that tasks share.

A task gets its share when it starts and keeps it. Three extensions at a time with a third of the jobs each take little
longer than with a jobserver that moves single jobs between them: "Jobs of the extensions" in docs/lab/measurements.md.
"""

from __future__ import annotations

from collections.abc import Callable

from megabuild.resources.jobs import Jobs


class Budget:
    """A number of jobs, chosen when the first task asks for some; to be used from one thread.

    Parameters
    ----------
    choose:
        Looks at the machine.
    tasks:
        How many tasks are to share it at a time.
    told:
        Takes the number when it is chosen.
    """

    def __init__(
        self,
        choose: Callable[[], Jobs],
        *,
        tasks: int = 1,
        told: Callable[[Jobs], None] = lambda jobs: None,
    ) -> None:
        self._choose = choose
        self._tasks = tasks
        self._told = told
        self._limit = 0
        self._taken = 0

    def take(self, *, last: bool) -> int:
        """Return a task's share, 0 where nothing is free; the last one to start gets all that is."""
        if not self._limit:
            jobs = self._choose()
            self._limit = jobs.count
            self._told(jobs)
        free = max(0, self._limit - self._taken)
        share = free if last else min(free, -(-self._limit // self._tasks))
        self._taken += share
        return share

    def give_back(self, share: int) -> None:
        """Take back a share."""
        self._taken -= share

    def halve(self) -> int:
        """Allow half as many from now on, since memory ran out; return how many, or 0 where it was but one."""
        if self._limit <= 1:
            return 0
        self._limit //= 2
        return self._limit
