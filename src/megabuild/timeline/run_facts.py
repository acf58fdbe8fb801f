"""Gathers the facts of one run for its picture: phases, ninja's steps, and samples of the machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from groundwork.exhaustive import assert_never
from megabuild.engine.compile_notes import CompileNotes, read_notes
from megabuild.status import history as history_file
from megabuild.status.history import Sample, Span
from megabuild.status.reading import RunState, Standing
from megabuild.status.record import RunRecord, RunStatus
from megabuild.timeline.kept_files import steps_folder
from megabuild.timeline.ninja_log import NinjaStep, read_ninja_log

#: Dates of files and of the run may come from different clocks of one machine.
_TOLERANCE = 2.0
_is_object = re.compile(r"\.(?:o|obj)$").search
#: CMake compiles these to test the compiler, without the ninja of the tree.
_is_test_of_cmake = re.compile(r"\bcmTC_").search


class StepKind(str, Enum):
    """The work of a step."""

    COMPILED = "compiled"
    CACHED = "cached"  #: an object that the object cache had
    OBJECT = "object"  #: compiled, or from the cache: there is no note
    OTHER = "other"  #: a link, a generated file, a copy
    UNFINISHED = "unfinished"  #: a compile in progress, or ended with its run


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of ninja; points in time are seconds since 1970."""

    name: str  #: its output, relative to the build folder
    kind: StepKind
    began: float
    ended: float  #: of an unfinished one, the run's end

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What the files of a run say about it."""

    name: str
    began: float
    ended: float  #: of a run in progress, now
    succeeded: bool
    host: str
    process: tuple[int, float]  #: ID and start of the driver's process, which several runs may share
    cores: int  #: number of cores that the run may use; 0 if unknown
    memory: int  #: bytes that the run may use; 0 if unknown
    spans: Sequence[Span]
    steps: Sequence[Step]  #: in order of their starts
    samples: Sequence[Sample]
    gaps: Sequence[str]  #: sentences about facts that are missing


def read_run_facts(run: RunState, now: float) -> RunFacts | None:
    """Return the facts of the last run in a config's folder; None if its record cannot be read."""
    record = run.record
    if record is None:
        return None
    gaps: list[str] = []
    history = history_file.read(run.folder, record.began)
    spans: list[Span] = []
    samples: list[Sample] = []
    if history is None:
        gaps.append("no samples and no former phases: an older megabuild made this run, or it was too short")
    else:
        spans += [span for span in history.spans if span.ended >= span.began]
        samples += history.samples
        if history.spans_left_out:
            gaps.append(f"{history.spans_left_out} further phases were not recorded")
    ended = _end(run.standing, record, spans, now)
    spans += _open_spans(record, ended)
    folder = steps_folder(run.folder)
    finished = read_ninja_log(folder)
    if finished is None:
        gaps.append("no steps: the config has no compiled tree, or it was removed")
        finished = []
    notes = read_notes(folder)
    steps = _steps(finished, notes, began=record.began, ended=ended)
    if any(step.kind is StepKind.OBJECT for step in steps):
        gaps.append("for some objects, no note says whether they are from the object cache")
    if finished and record.status is not RunStatus.DONE:
        steps += _unfinished(steps, notes, began=record.began, ended=ended)
    return RunFacts(
        name=run.name,
        began=record.began,
        ended=ended,
        succeeded=record.status is RunStatus.DONE,
        host=record.host,
        process=(record.pid, record.process_began),
        cores=history.cores if history else 0,
        memory=history.memory if history else 0,
        spans=spans,
        steps=sorted(steps, key=lambda step: step.began),
        samples=_samples_between(samples, record.began, ended + _TOLERANCE),
        gaps=gaps,
    )


def _end(standing: Standing, record: RunRecord, spans: Sequence[Span], now: float) -> float:
    """Return the end of a run, or of its last known phase or sample."""
    match standing:
        case Standing.RUNNING:
            return now
        case Standing.ENDED | Standing.DIED | Standing.UNKNOWN | Standing.UNREADABLE:
            # the recorded duration leaves out the plan
            return max([record.began, record.updated, *(span.ended for span in spans)])
        case never:
            assert_never(never)


def _samples_between(samples: Sequence[Sample], began: float, ended: float) -> list[Sample]:
    chosen: list[Sample] = []
    for sample in samples:
        if began <= sample.at <= ended:
            chosen.append(sample)
    return chosen


def _open_spans(record: RunRecord, ended: float) -> list[Span]:
    """Return the phases in progress, or those that a killed run did not end."""
    spans: list[Span] = []
    for row in record.activities:
        if row.since < ended:
            spans.append(Span(task=row.task, what=row.what, began=row.since, ended=ended))
    return spans


def _steps(finished: Sequence[NinjaStep], notes: CompileNotes, *, began: float, ended: float) -> list[Step]:
    """Return the steps of a run that finished."""
    steps: list[Step] = []
    for step in finished:
        if began - _TOLERANCE <= step.began and step.ended <= ended + _TOLERANCE:
            kind = _kind(step, notes)
            steps.append(Step(name=step.output, kind=kind, began=step.began, ended=step.ended))
    return steps


def _kind(step: NinjaStep, notes: CompileNotes) -> StepKind:
    if not _is_object(step.output):
        return StepKind.OTHER
    if notes.was_compiled(step.output, step.began, step.ended):
        return StepKind.COMPILED
    if notes.covers(step.began):
        return StepKind.CACHED
    return StepKind.OBJECT


def _unfinished(steps: Sequence[Step], notes: CompileNotes, *, began: float, ended: float) -> list[Step]:
    """Return the compiles that were noted during a run, and that ninja has not finished."""
    last_end = {step.name: step.ended for step in steps}
    unfinished: list[Step] = []
    for name, starts in notes.starts.items():
        start = max(starts)
        is_in_run = began <= start < ended
        if is_in_run and start > last_end.get(name, 0.0) and not _is_test_of_cmake(name):
            step = Step(name=name, kind=StepKind.UNFINISHED, began=start, ended=ended)
            unfinished.append(step)
    return unfinished
