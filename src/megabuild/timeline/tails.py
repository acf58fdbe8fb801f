"""Counts the steps that run in parallel, and finds each compile's tail, in which too few are left for all jobs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from megabuild.timeline.run_facts import RunFacts, Step

#: Seconds without a step that separate two compiles.
_PAUSE = 5.0
#: A tail begins when less than this share of the jobs have a step, for good.
_BUSY_SHARE = 0.9
#: Shorter tails are not shown: in seconds, and as a share of the compile.
_SHORTEST = 5.0
_SMALLEST_SHARE = 0.01


@dataclass(frozen=True, kw_only=True)
class Load:
    """A stretch of time with the same number of running steps."""

    began: float
    ended: float
    running: int

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@dataclass(frozen=True, kw_only=True)
class Tail:
    """The end of a compile."""

    began: float
    ended: float
    jobs: int  #: the most steps that ran in parallel
    idle: float  #: seconds of jobs without a step, summed
    longest: Step  #: the step that ran longest in it

    @property
    def seconds(self) -> float:
        return self.ended - self.began


def measure_loads(steps: Sequence[Step]) -> list[Load]:
    """Return the number of running steps over time, from the first beginning to the last end."""
    changes: list[tuple[float, int]] = []
    for step in steps:
        changes.append((step.began, 1))
        changes.append((step.ended, -1))
    changes.sort()
    stretches: list[Load] = []
    running = 0
    before = changes[0][0] if changes else 0.0
    for at, change in changes:
        if at > before:
            stretches.append(Load(began=before, ended=at, running=running))
        running += change
        before = at
    return stretches


def find_tails(run: RunFacts) -> Iterator[Tail]:
    """Yield the tails of a run's compiles. If the run has not succeeded, its last compile may have been cut."""
    compiles = list(_compiles(run.steps))
    if not run.succeeded:
        compiles = compiles[:-1]
    for compile_steps in compiles:
        stretches = measure_loads(compile_steps)
        jobs = max((stretch.running for stretch in stretches), default=0)
        if jobs < 2:
            continue
        enough = math.ceil(_BUSY_SHARE * jobs)
        began = max(stretch.ended for stretch in stretches if stretch.running >= enough)
        ended = stretches[-1].ended
        if ended - began < max(_SHORTEST, _SMALLEST_SHARE * (ended - stretches[0].began)):
            continue
        left = [stretch for stretch in stretches if stretch.began >= began]
        idle = sum((jobs - stretch.running) * stretch.seconds for stretch in left)
        longest = max(compile_steps, key=lambda step: step.ended - max(began, step.began))
        yield Tail(began=began, ended=ended, jobs=jobs, idle=idle, longest=longest)


def _compiles(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Yield the steps of each compile: those between two pauses."""
    group: list[Step] = []
    ended = -math.inf
    for step in steps:
        if group and step.began > ended + _PAUSE:
            yield group
            group = []
        group.append(step)
        ended = max(ended, step.ended)
    if group:
        yield group
