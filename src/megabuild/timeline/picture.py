"""Makes the pictures of runs: each has one time axis, the strips of machines and runs, and lists of findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from megabuild.timeline.drawing import Axis, Tick, ticks
from megabuild.timeline.findings import (
    IdlePhase,
    LongStep,
    LongTail,
    idle_phases,
    longest_steps,
    longest_tails,
)
from megabuild.timeline.machine_strips import CoresStrip, MemoryStrip, draw_cores, draw_memory
from megabuild.timeline.run_facts import RunFacts
from megabuild.timeline.run_strip import RunStrip, draw_run
from megabuild.timeline.usage import Usage, combine_usage

#: Runs further apart than this get pictures of their own, in seconds.
_APART = 900.0
#: Pixels of all runs' steps, and of the steps of one run.
_STEPS_HEIGHT = 160.0
_LOWEST_STEPS = 48.0
#: Boxes of steps on a page. A box has about 25 bytes, and a page should have less than 2 MB.
_MOST_BOXES = 40_000


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Runs on one time axis."""

    began: float
    seconds: float
    ticks: Sequence[Tick]
    cores: Sequence[CoresStrip]
    memory: Sequence[MemoryStrip]
    runs: Sequence[RunStrip]
    phases: Sequence[IdlePhase]
    steps: Sequence[LongStep]
    tails: Sequence[LongTail]


def draw_pictures(facts: Sequence[RunFacts], results: Mapping[str, Sequence[str]]) -> list[Picture]:
    """Return the pictures of runs, by time; ``results`` has lines on how each run ended, by its name."""
    most_boxes = _MOST_BOXES // max(1, len(facts))
    return [_draw(group, results, most_boxes) for group in _groups(facts)]


def _groups(facts: Sequence[RunFacts]) -> Iterator[list[RunFacts]]:
    """Yield runs that overlap, or follow each other soon."""
    group: list[RunFacts] = []
    ended = 0.0
    for run in sorted(facts, key=lambda run: run.began):
        if group and run.began > ended + _APART:
            yield group
            group = []
        group.append(run)
        ended = max(ended, run.ended)
    if group:
        yield group


def _draw(runs: Sequence[RunFacts], results: Mapping[str, Sequence[str]], most_boxes: int) -> Picture:
    began = min(run.began for run in runs)
    axis = Axis(began=began, ended=max(began + 1, *(run.ended for run in runs)))
    usages = list(_usages(runs))
    cores: list[CoresStrip] = []
    memory: list[MemoryStrip] = []
    for usage, _ in usages:
        cores.append(draw_cores(axis, usage))
        memory_strip = draw_memory(axis, usage)
        if memory_strip is not None:
            memory.append(memory_strip)
    height = max(_LOWEST_STEPS, _STEPS_HEIGHT / len(runs))
    strips: list[RunStrip] = []
    for run in runs:
        strips.append(draw_run(axis, run, results.get(run.name, ()), height=height, most_boxes=most_boxes))
    return Picture(
        began=began,
        seconds=axis.ended - began,
        ticks=list(ticks(axis)),
        cores=cores,
        memory=memory,
        runs=strips,
        phases=idle_phases(usages),
        steps=longest_steps(runs, began),
        tails=longest_tails(runs),
    )


def _usages(runs: Sequence[RunFacts]) -> Iterator[tuple[Usage, list[RunFacts]]]:
    """Yield the use of each machine, with its runs."""
    by_host: dict[str, list[RunFacts]] = {}
    for run in runs:
        by_host.setdefault(run.host, []).append(run)
    for on_host in by_host.values():
        usage = combine_usage(on_host)
        if usage is not None:
            yield usage, on_host
