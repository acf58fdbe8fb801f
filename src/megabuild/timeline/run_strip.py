"""Draws the strips of one run: its phases, and ninja's steps, one lane for each parallel step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from groundwork.text import duration
from megabuild.status.history import Span
from megabuild.timeline.drawing import WIDTH, Axis, Place, boxes, place
from megabuild.timeline.lanes import put_in_lanes
from megabuild.timeline.run_facts import RunFacts, Step, StepKind
from megabuild.timeline.tails import Tail, find_tails

#: Pixels: a lane of phases, and a lane of steps.
_PHASE_HEIGHT = 22
_HIGHEST_LANE = 18.0
_LOWEST_LANE = 2.0
#: Part of a lane's height that is filled.
_FILLED = 0.88
#: Steps narrower than this are drawn together, in units of the axis.
_FINEST = 0.4
#: Steps of a run that have a title of their own.
_MOST_TITLED = 30
#: Blocks that are narrower or lower have no text, in percent and in pixels.
_NARROWEST_TEXT = 2.0
_LOWEST_TEXT = 14.0
#: Narrower phases are named without their package, in percent.
_NARROW = 12.0
#: Height of a label in pixels, and the last place for one in percent.
_LABEL_HEIGHT = 17.0
_LAST_LABEL = 85.0
#: Phases shorter than this share of the axis are not drawn.
_SHORTEST_PHASE = 0.0005
_MOST_PHASES = 500


@dataclass(frozen=True, kw_only=True)
class Block:
    """A box with a text and a title."""

    place: Place
    top: float  #: in pixels
    height: float  #: in pixels
    kind: str  #: its class in the page's style sheet
    text: str
    title: str


@dataclass(frozen=True, kw_only=True)
class KindSum:
    """The steps of one kind in a run."""

    kind: StepKind
    count: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class RunStrip:
    """Phases and steps of one run."""

    name: str
    result: Sequence[str]  #: lines: how the run ended
    phases: Sequence[Block]
    phases_height: int  #: in pixels
    lanes: int  #: number of parallel steps
    steps_height: int  #: in pixels, and in units of the paths
    tails: Sequence[Block]
    paths: Mapping[str, str]  #: of all steps but the longest, by kind
    longest: Sequence[Block]  #: the longest steps
    labels: Sequence[Block]  #: the name of the longest step of the most idle tail, right of its box
    sums: Sequence[KindSum]
    gaps: Sequence[str]  #: sentences about facts that are missing


def draw_run(axis: Axis, run: RunFacts, result: Sequence[str], *, height: float, most_boxes: int) -> RunStrip:
    """Return a run's strips: if possible, all lanes of steps are ``height`` pixels high.

    At most about ``most_boxes`` boxes are drawn: neighbours become one.
    """
    lanes = put_in_lanes(run.steps)
    lane_height = max(_LOWEST_LANE, min(_HIGHEST_LANE, height / max(1, len(lanes))))
    by_length = sorted(run.steps, key=lambda step: -step.seconds)
    titled = set(by_length[:_MOST_TITLED])
    longest: list[Block] = []
    tops: dict[Step, float] = {}
    paths: dict[StepKind, list[str]] = {kind: [] for kind in StepKind}
    finest = max(_FINEST, WIDTH * len(lanes) / most_boxes)
    for number, lane in enumerate(lanes):
        top = round(number * lane_height, 2)
        filled = round(lane_height * _FILLED, 2)
        others: dict[StepKind, list[Step]] = {kind: [] for kind in StepKind}
        for step in lane:
            tops[step] = top
            if step in titled:
                longest.append(_step_block(axis, step, top=top, height=filled))
            else:
                others[step.kind].append(step)
        for kind, steps in others.items():
            paths[kind] += boxes(axis, steps, top=top, height=filled, finest=finest)
    steps_height = round(lane_height * len(lanes))
    phases = list(_phase_blocks(axis, run.spans))
    tails = list(find_tails(run))
    labels: list[Block] = []
    for tail in sorted(tails, key=lambda tail: -tail.idle)[:1]:
        label = _label(axis, tail, top=tops[tail.longest], lane_height=lane_height)
        if label.place.left < _LAST_LABEL:
            labels.append(label)
    return RunStrip(
        name=run.name,
        result=result,
        phases=phases,
        phases_height=round(max((block.top for block in phases), default=-_PHASE_HEIGHT)) + _PHASE_HEIGHT,
        lanes=len(lanes),
        steps_height=steps_height,
        tails=[_tail_block(axis, tail, steps_height) for tail in tails],
        paths=_joined(paths),
        longest=longest,
        labels=labels,
        sums=list(_sum_kinds(run.steps)),
        gaps=run.gaps,
    )


def _joined(paths: Mapping[StepKind, Sequence[str]]) -> dict[str, str]:
    """Return one path for each kind that has steps, by the kind's word."""
    joined: dict[str, str] = {}
    for kind, parts in paths.items():
        if parts:
            joined[kind.value] = "".join(parts)
    return joined


def _step_block(axis: Axis, step: Step, *, top: float, height: float) -> Block:
    where = place(axis, step)
    took = duration(step.seconds)
    text = ""
    if where.width >= _NARROWEST_TEXT and height >= _LOWEST_TEXT:
        text = f"{step.name.rpartition('/')[2]} {took}"
    title = f"{step.name}: {step.kind.value}, {took}"
    return Block(place=where, top=top, height=height, kind=step.kind.value, text=text, title=title)


def _tail_block(axis: Axis, tail: Tail, height: int) -> Block:
    title = f"tail of {duration(tail.seconds)} with fewer than {tail.jobs} steps"
    return Block(place=place(axis, tail), top=0, height=height, kind="tail", text="", title=title)


def _label(axis: Axis, tail: Tail, *, top: float, lane_height: float) -> Block:
    """Return the name and duration of a tail's longest step, to the right of its box."""
    step = tail.longest
    text = f"{step.name.rpartition('/')[2]} {duration(step.seconds)}"
    left = round(axis.share(step.ended) * 100, 3)
    where = Place(left=left, width=round(100 - left, 3))
    middle = top + lane_height / 2 - _LABEL_HEIGHT / 2
    return Block(place=where, top=max(0.0, middle), height=_LABEL_HEIGHT, kind="label", text=text, title="")


def _phase_blocks(axis: Axis, spans: Sequence[Span]) -> Iterator[Block]:
    """Yield the phases; each task stays in one lane, which it may share with tasks before and after it."""
    shortest = _SHORTEST_PHASE * (axis.ended - axis.began)
    tasks: dict[str, list[Span]] = {}
    for span in sorted(spans, key=lambda span: span.began)[:_MOST_PHASES]:
        if span.ended - span.began >= shortest:
            tasks.setdefault(span.task, []).append(span)
    whole: list[Span] = []
    for task, phases in tasks.items():
        ended = max(span.ended for span in phases)
        whole.append(Span(task=task, what="", began=phases[0].began, ended=ended))
    for number, lane in enumerate(put_in_lanes(whole)):
        for task_span in lane:
            for span in tasks[task_span.task]:
                yield _phase_block(axis, span, top=number * _PHASE_HEIGHT)


def _phase_block(axis: Axis, span: Span, *, top: float) -> Block:
    where = place(axis, span)
    what = span.what
    took = duration(span.ended - span.began)
    text = what
    if where.width < _NARROWEST_TEXT:
        text = ""
    elif where.width < _NARROW:
        text = what.rpartition(": ")[2]
    height = round(_PHASE_HEIGHT * _FILLED, 1)
    return Block(place=where, top=top, height=height, kind="phase", text=text, title=f"{what}: {took}")


def _sum_kinds(steps: Sequence[Step]) -> Iterator[KindSum]:
    for kind in StepKind:
        seconds = [step.seconds for step in steps if step.kind is kind]
        if seconds:
            yield KindSum(kind=kind, count=len(seconds), seconds=sum(seconds))
