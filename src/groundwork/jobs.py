"""Chooses the number of compile jobs, one per core as far as memory allows, and shares them among tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from groundwork.errors import UsageError
from groundwork.machine import Machine
from groundwork.text import counted

#: Measured peaks of one compile with PyTorch 2.13's headers and g++ 12: g++ takes 2.2 to 2.5 GB, nvcc 3.1 GB.
_GXX_BYTES = 2_600_000_000
_NVCC_BYTES = 3_300_000_000


def bytes_per_compile(*, cuda: bool) -> int:
    """Return the bytes of memory that one compile of an extension needs at most."""
    if cuda:
        return _NVCC_BYTES
    return _GXX_BYTES


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """A number of compile jobs, and the reason for it."""

    count: int
    reason: str


def compile_jobs(
    machine: Machine,
    *,
    bytes_per_job: int,
    most: int | None = None,
    requested: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> Jobs:
    """Choose the number of compile jobs; ``requested``, ``CPU_COUNT`` or ``MAX_JOBS`` is used unchanged.

    All jobs together may use ``most`` bytes of memory; None: all free memory.
    """
    if requested is not None:
        return Jobs(count=requested, reason="set by --jobs")
    chosen = _of_variables(environ or {})
    if chosen is not None:
        return chosen
    free = min(machine.memory_free, most or machine.memory_free)
    fitting = max(1, free // max(1, bytes_per_job))  # 0: unknown
    cores = counted(machine.cores, "core")
    if fitting >= machine.cores:
        return Jobs(count=machine.cores, reason=cores)
    reason = f"memory for {counted(fitting, 'job')} of {bytes_per_job / 2**30:.1f} GiB on {cores}"
    return Jobs(count=fitting, reason=reason)


def _of_variables(environ: Mapping[str, str]) -> Jobs | None:
    """Return the number that a variable sets, if one does; raises UsageError."""
    for name in ("CPU_COUNT", "MAX_JOBS"):
        text = environ.get(name, "").strip()
        if not text:
            continue
        if not text.isdecimal() or int(text) < 1:
            raise UsageError(f"{name}: '{text}' is not a positive number", f"correct or unset {name}")
        return Jobs(count=int(text), reason=f"set by {name}")
    return None


class Budget:
    """Compile jobs that tasks share; not thread-safe. A task gets its share when it starts and keeps it.

    ``tasks``: how many tasks run at a time. ``heavy_jobs``: how many jobs may compile heavy objects; 0 for all.
    """

    def __init__(self, count: int, *, tasks: int = 1, heavy_jobs: int = 0) -> None:
        self.heavy_jobs = heavy_jobs
        self._count = count
        self._tasks = tasks
        self._taken = 0

    def acquire(self, *, last: bool) -> int:
        """Return a task's share, 0 if no job is free; the last task to start gets all free jobs."""
        share = max(0, self._count - self._taken)
        if not last:
            share = min(share, math.ceil(self._count / self._tasks))
        self._taken += share
        return share

    def release(self, share: int) -> None:
        """Return a finished task's share."""
        self._taken -= share

    def halve(self) -> int:
        """Halve both numbers of jobs after memory ran out; return the new number of jobs, or 0 if it was 1."""
        self.heavy_jobs -= self.heavy_jobs // 2
        if self._count <= 1:
            return 0
        self._count //= 2
        return self._count
