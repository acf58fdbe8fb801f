"""How many compile jobs to run: as many as there are cores, but no more than fit into memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from megabuild.errors import UsageError
from megabuild.resources.machine import Machine


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """A number of compile jobs, and why this one."""

    count: int
    reason: str


def compile_jobs(
    machine: Machine,
    *,
    bytes_per_job: int,
    requested: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> Jobs:
    """Choose the number of compile jobs.

    Parameters
    ----------
    machine:
        What there is.
    bytes_per_job:
        Memory of the largest compile, in bytes.
    requested:
        The user's choice, which is never changed.
    environ:
        Environment in which ``CPU_COUNT`` or ``MAX_JOBS`` may hold the user's choice.

    Raises
    ------
    UsageError
        A choice that is no positive number.
    """
    if requested is not None:
        if requested < 1:
            raise UsageError(f"{requested} compile jobs", "ask for at least one")
        return Jobs(count=requested, reason="as asked for")
    for name in ("CPU_COUNT", "MAX_JOBS"):
        text = (environ or {}).get(name, "").strip()
        if text:
            if not text.isdecimal() or int(text) < 1:
                raise UsageError(f"{name} is '{text}'", "set it to a positive number, or unset it")
            return Jobs(count=int(text), reason=f"{name} says so")
    fitting = max(1, machine.memory_free // bytes_per_job)
    if fitting < machine.cores:
        gib = bytes_per_job / 2**30
        return Jobs(
            count=int(fitting), reason=f"memory for {fitting} jobs of {gib:.1f} GiB on {machine.cores} cores"
        )
    return Jobs(count=machine.cores, reason=f"{machine.cores} cores")
