"""Combines the samples of runs on one machine into one course of used and idle cores."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from megabuild.status.history import Span
from megabuild.timeline.run_facts import RunFacts
from megabuild.timeline.tails import measure_loads

#: The task whose phases name a time, if other tasks run in parallel.
_MAIN_TASK = "pytorch"
#: Samples closer than this follow each other, in seconds.
_GAP = 0.5


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """A stretch of time with the average use of one machine."""

    began: float
    ended: float
    cores: float  #: used by the runs
    other_cores: float = 0.0  #: used by other programs
    memory: int = 0  #: bytes of the runs

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The use of one machine by the runs of a picture."""

    host: str
    cores: int  #: that the runs may use
    memory: int  #: bytes that the runs may use; 0 if unknown
    measured: bool  #: whether the stretches are samples; otherwise ninja's steps count as cores
    stretches: Sequence[Stretch]  #: in order, without overlaps

    def idle(self, stretch: Stretch) -> float:
        """Return the number of cores that no program used."""
        return max(0.0, self.cores - stretch.cores - stretch.other_cores)

    @property
    def core_seconds(self) -> float:
        return self.cores * sum(stretch.seconds for stretch in self.stretches)

    @property
    def used_core_seconds(self) -> float:
        return sum(min(self.cores, stretch.cores) * stretch.seconds for stretch in self.stretches)

    @property
    def idle_core_seconds(self) -> float:
        return sum(self.idle(stretch) * stretch.seconds for stretch in self.stretches)


def combine_usage(runs: Sequence[RunFacts]) -> Usage | None:
    """Return the use of the machine by runs on one host; None without samples and steps."""
    by_process: dict[tuple[int, float], list[RunFacts]] = {}
    for run in runs:
        by_process.setdefault(run.process, []).append(run)
    courses = [_course(group) for group in by_process.values()]
    stretches = list(_sum(courses))
    if stretches:
        cores = max(run.cores for run in runs)
        memory = max(run.memory for run in runs)
        return Usage(host=runs[0].host, cores=cores, memory=memory, measured=True, stretches=stretches)
    steps = list(chain.from_iterable(run.steps for run in runs))
    for load in measure_loads(steps):
        stretches.append(Stretch(began=load.began, ended=load.ended, cores=load.running))
    if not stretches:
        return None
    most = round(max(stretch.cores for stretch in stretches))
    return Usage(host=runs[0].host, cores=most, memory=0, measured=False, stretches=stretches)


def _course(runs: Sequence[RunFacts]) -> list[Stretch]:
    """Return the course of one process. Its runs that are in progress at once all measure the same."""
    every = chain.from_iterable(run.samples for run in runs)
    samples = sorted(every, key=lambda sample: sample.at)
    course: list[Stretch] = []
    ended = 0.0
    for sample in samples:
        began = sample.at - sample.seconds
        if began - ended < _GAP:
            began = ended
        if sample.at <= began:
            continue
        stretch = Stretch(
            began=began,
            ended=sample.at,
            cores=sample.cores,
            other_cores=sample.other_cores,
            memory=sample.memory,
        )
        course.append(stretch)
        ended = sample.at
    return course


def _sum(courses: Sequence[Sequence[Stretch]]) -> Iterator[Stretch]:
    """Yield the sum of courses of several processes, each of which counts the others among other programs."""
    if len(courses) == 1:
        yield from courses[0]
        return
    begins: list[list[float]] = []
    for course in courses:
        begins.append([stretch.began for stretch in course])
    for began, ended in _pieces(chain.from_iterable(courses)):
        present: list[Stretch] = []
        for number, course in enumerate(courses):
            before = bisect_right(begins[number], began) - 1
            if before >= 0 and ended <= course[before].ended:
                present.append(course[before])
        if not present:
            continue
        cores = sum(stretch.cores for stretch in present)
        busy = max(stretch.cores + stretch.other_cores for stretch in present)
        yield Stretch(
            began=began,
            ended=ended,
            cores=cores,
            other_cores=max(0.0, busy - cores),
            memory=sum(stretch.memory for stretch in present),
        )


def _pieces(items: Iterable[Stretch]) -> Iterator[tuple[float, float]]:
    """Yield the pieces of time between all beginnings and ends."""
    points: set[float] = set()
    for item in items:
        points.update((item.began, item.ended))
    yield from pairwise(sorted(points))


@dataclass(kw_only=True)
class PhaseUse:
    """The use of a machine during one phase, or several in parallel."""

    name: str
    seconds: float = 0.0
    used: float = 0.0  #: core seconds of the runs
    idle: float = 0.0  #: core seconds that no program used


def use_by_phase(usage: Usage, runs: Sequence[RunFacts]) -> list[PhaseUse]:
    """Return the use during each phase, the one with the most idle cores first; all times count once."""
    uses: dict[str, PhaseUse] = {}
    for stretch in usage.stretches:
        middle = (stretch.began + stretch.ended) / 2
        name = _phase_at(runs, middle)
        use = uses.setdefault(name, PhaseUse(name=name))
        use.seconds += stretch.seconds
        use.used += stretch.cores * stretch.seconds
        use.idle += usage.idle(stretch) * stretch.seconds
    return sorted(uses.values(), key=lambda use: -use.idle)


def _phase_at(runs: Sequence[RunFacts], at: float) -> str:
    """Return the main phase of each run at a time."""
    names: list[str] = []
    for run in runs:
        active = _active_spans(run, at)
        if not active:
            continue
        main = min(active, key=lambda span: (span.task != _MAIN_TASK, span.began))
        name = main.what
        if len(runs) > 1:
            name = f"{run.name}, {name}"
        names.append(name)
    return " + ".join(names) or "no phase"


def _active_spans(run: RunFacts, at: float) -> list[Span]:
    active: list[Span] = []
    for span in run.spans:
        if span.began <= at < span.ended:
            active.append(span)
    return active
