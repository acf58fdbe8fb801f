"""Lists the findings of a picture: phases with idle cores, the longest steps, and the tails of compiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from megabuild.timeline.run_facts import RunFacts, Step
from megabuild.timeline.tails import Tail, find_tails
from megabuild.timeline.usage import PhaseUse, Usage, use_by_phase

_MOST_ROWS = 10
#: Phases with less than this share of all idle cores are not listed.
_SMALLEST_SHARE = 0.01


@dataclass(frozen=True, kw_only=True)
class LongStep:
    """A step among the longest of a picture."""

    run: str
    step: Step
    after: float  #: seconds from the picture's beginning to its own


@dataclass(frozen=True, kw_only=True)
class LongTail:
    """A tail among the most idle of a picture."""

    run: str
    tail: Tail


@dataclass(frozen=True, kw_only=True)
class IdlePhase:
    """A phase among those with the most idle cores."""

    use: PhaseUse
    cores: int  #: of its machine

    @property
    def used_cores(self) -> float:
        """The average number of cores that the runs used."""
        return self.use.used / self.use.seconds


def longest_steps(runs: Sequence[RunFacts], began: float) -> list[LongStep]:
    """Return the longest steps of several runs, the longest first."""
    steps: list[LongStep] = []
    for run in runs:
        for step in run.steps:
            steps.append(LongStep(run=run.name, step=step, after=step.began - began))
    steps.sort(key=lambda row: -row.step.seconds)
    return steps[:_MOST_ROWS]


def longest_tails(runs: Sequence[RunFacts]) -> list[LongTail]:
    """Return the tails of several runs, the one with the most idle time first."""
    tails: list[LongTail] = []
    for run in runs:
        for tail in find_tails(run):
            tails.append(LongTail(run=run.name, tail=tail))
    tails.sort(key=lambda row: -row.tail.idle)
    return tails[:_MOST_ROWS]


def idle_phases(usages: Sequence[tuple[Usage, Sequence[RunFacts]]]) -> list[IdlePhase]:
    """Return the phases in which the most cores of each machine idled; machines come with their runs."""
    phases: list[IdlePhase] = []
    for usage, runs in usages:
        phases += _idle_phases(usage, runs)
    phases.sort(key=lambda phase: -phase.use.idle)
    return phases[:_MOST_ROWS]


def _idle_phases(usage: Usage, runs: Sequence[RunFacts]) -> Iterator[IdlePhase]:
    if not usage.measured or not any(run.spans for run in runs):
        return
    smallest = _SMALLEST_SHARE * usage.idle_core_seconds
    for use in use_by_phase(usage, runs):
        if use.idle > smallest:
            yield IdlePhase(use=use, cores=usage.cores)
