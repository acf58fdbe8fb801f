"""How many compile jobs to run: as many as there are cores, but no more than fit into memory; and sharing them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from groundwork.errors import UsageError
from groundwork.machine import Machine
from groundwork.text import counted

#: Measured peaks of one compile with PyTorch 2.13's headers and g++ 12: 2.2 to 2.5 GB per g++, 3.1 GB per nvcc.
_GXX_BYTES, _NVCC_BYTES = 2_600_000_000, 3_300_000_000


def bytes_per_compile(*, cuda: bool) -> int:
    """Return the memory that one compile of an extension takes at most."""
    return _NVCC_BYTES if cuda else _GXX_BYTES


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """A number of compile jobs, and why this one."""

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
    """Choose the number of compile jobs; the user's choice, also as ``CPU_COUNT`` or ``MAX_JOBS``, is never changed.

    All jobs together may take ``most`` bytes, or all that is free where that is None.
    """
    if requested is not None:
        return Jobs(count=requested, reason="as asked for")
    for name in ("CPU_COUNT", "MAX_JOBS"):
        if text := (environ or {}).get(name, "").strip():
            if not text.isdecimal() or int(text) < 1:
                raise UsageError(f"{name} is '{text}'", "set it to a positive number, or unset it")
            return Jobs(count=int(text), reason=f"{name} says so")
    free = min(machine.memory_free, most or machine.memory_free)
    fitting = max(1, free // max(1, bytes_per_job))  # 0: not known
    if fitting >= machine.cores:
        return Jobs(count=machine.cores, reason=counted(machine.cores, "core"))
    reason = f"memory for {counted(fitting, 'job')} of {bytes_per_job / 2**30:.1f} GiB"
    return Jobs(count=fitting, reason=f"{reason} on {counted(machine.cores, 'core')}")


class Budget:
    """A number of jobs that tasks share, chosen when the first one asks for some; to be used from one thread.

    A task gets its share when it starts and keeps it. ``tasks`` is how many run at a time.
    """

    def __init__(self, choose: Callable[[], Jobs], *, tasks: int = 1) -> None:
        self._choose, self._tasks = choose, tasks
        self.count = 0  #: how many there are, 0 before they are chosen
        self._taken = 0

    def acquire(self, *, last: bool) -> int:
        """Return a task's share, 0 where nothing is free; the last one to start gets all that is."""
        if not self.count:
            self.count = self._choose().count
        free = max(0, self.count - self._taken)
        share = free if last else min(free, -(-self.count // self._tasks))
        self._taken += share
        return share

    def release(self, share: int) -> None:
        """Take back a share."""
        self._taken -= share

    def halve(self) -> int:
        """Allow half as many from now on, since memory ran out; return how many, or 0 where it was but one."""
        if self.count <= 1:
            return 0
        self.count //= 2
        return self.count
