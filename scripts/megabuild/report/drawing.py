"""What a run did, drawn over its time, and what of that took longest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import PurePosixPath

from groundwork.text import duration, size
from groundwork.wording import counted
from megabuild.report.chart import Axis, Bar, area, at_once, buckets, mean, packed, rows, ruler, text
from megabuild.report.timeline import Ran, Span, Timeline

_SLOWEST = 20
_WORTH = 0.5  # seconds
#: More steps than any build of PyTorch has; of more, which a build may have made up, the longest are drawn.
_MOST_STEPS = 6000
_ZOOMS = (1, 5, 25)
#: What bars stand for, by the class of the style sheet that colours them.
_KINDS = {
    "phase": "phase of the build", "test": "test of a package", "cxx": "C and C++", "cuda": "CUDA",
    "link": "library or program", "gen": "generated, installed", "bad": "failed",
}  # fmt: skip


def drawn(timeline: Timeline) -> Iterator[str]:
    """Give the drawing: tasks, ninja's steps, and what they took of the machine, one above the other."""
    if timeline.seconds <= 0:
        return
    axis = Axis(began=timeline.head.began, seconds=timeline.seconds)
    steps = sorted(timeline.steps, key=lambda step: -step.seconds)[:_MOST_STEPS]
    bars = [_of_step(step, axis) for step in steps]
    lanes = list(_lanes(timeline.spans, axis))
    used = {bar.kind for bar in bars} | {bar.kind for _, group in lanes for bar in chain.from_iterable(group)}
    yield "<h2>Timeline</h2>"
    for zoom in _ZOOMS:
        first = ' checked="checked"' if zoom == 1 else ""
        yield f'<input class="zoom" type="radio" name="zoom" id="z{zoom}" aria-label="{zoom} x as wide"{first}/>'
    labels = (f'<label for="z{zoom}">{f"{zoom} x" if zoom > 1 else "all"}</label>' for zoom in _ZOOMS)
    yield f"<div class='zooms'>{' '.join(labels)}</div>"
    keys = (f"<span>{swatch(kind)}{words}</span>" for kind, words in _KINDS.items() if kind in used)
    yield f"<div class='keys'>{''.join(keys)}</div><div class='scroll'>{ruler(axis, _ZOOMS)}"
    for name, group in lanes:
        yield f"<div class='name'>{text(name)}</div>{rows(group, axis, height=18, gap=2, labels=True)}"
    if bars:
        at_a_time = packed(bars)
        height = max(2.0, min(12.0, 260 / len(at_a_time)))
        left_out = len(timeline.steps) - len(steps)
        more = f"; {left_out} short ones are not drawn" if left_out else ""
        said = f"{counted(len(timeline.steps), 'step')} of ninja, {len(at_a_time)} at once at most{more}"
        yield f"<div class='name'>{said}</div>"
        yield rows(at_a_time, axis, height=height, gap=1 if height > 4 else 0, labels=False)
    yield from _use(timeline, axis)
    yield "</div>"


def slow(timeline: Timeline) -> Iterator[str]:
    """Give tables of what took longest: steps, and everything else."""
    head = timeline.head
    steps = sorted(timeline.steps, key=lambda step: -step.seconds)[:_SLOWEST]
    if steps:
        yield f"<h2>{f'The {len(steps)} slowest steps' if len(steps) > 1 else 'The slowest step'}</h2>"
        yield from table(
            ("n:took", "share:", "path:made", "n:at"),
            (
                (
                    precise(step.seconds),
                    _share(_kind(step), step.seconds, steps[0].seconds),
                    f"<code>{text(step.output)}</code>{_more(step)}",
                    duration(max(0.0, step.at - head.began)),
                )
                for step in steps
            ),
        )
    spans = sorted(timeline.spans, key=lambda span: span.began - span.ended)[:_SLOWEST]
    spans = [span for span in spans if span.ended - span.began >= _WORTH] or spans[:1]
    if spans:
        longest = spans[0].ended - spans[0].began
        yield f"<h2>What took longest{' besides' if steps else ''}</h2>"
        yield from table(
            ("n:took", "share:", "path:what", "n:at"),
            (
                (
                    precise(span.ended - span.began),
                    _share(_kind_of(span), span.ended - span.began, longest),
                    text(span.what),
                    duration(max(0.0, span.began - head.began)),
                )
                for span in spans
            ),
        )


def table(heads: Sequence[str], cells: Iterable[Sequence[str]]) -> Iterator[str]:
    """Give a table of cells that are markup; ``n:size`` is a column of class ``n`` with the heading ``size``."""
    columns = [head.rpartition(":")[::2] for head in heads]
    classes = [f" class='{kind}'" if kind else "" for kind, _ in columns]
    yield "<div class='table'><table>"
    if any(name for _, name in columns):
        names = (f"<th{kind}>{name}</th>" for kind, (_, name) in zip(classes, columns, strict=True))
        yield f"<tr>{''.join(names)}</tr>"
    for row in cells:
        yield f"<tr>{''.join(f'<td{kind}>{cell}</td>' for kind, cell in zip(classes, row, strict=True))}</tr>"
    yield "</table></div>"


def precise(seconds: float) -> str:
    """Return a duration with a digit more where it is short."""
    return f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.1f} s" if seconds < 9.95 else duration(seconds)


def swatch(kind: str, width: str = "") -> str:
    """Return a patch of what something is drawn with."""
    wide = f";width:{width}" if width else ""
    return f'<i style="background:var(--{kind}){wide}"></i>'


def _lanes(spans: Sequence[Span], axis: Axis) -> Iterator[tuple[str, list[list[Bar]]]]:
    """Give the rows of tasks: PyTorch's build, the extensions, and the tests beside them."""
    build = [span for span in spans if span.lane == "pytorch"]
    tests = [span for span in spans if span.lane.startswith("test ")]
    before = [span for span in spans if span.lane.startswith("prepare ")]
    others = [span for span in spans if span not in build and span not in tests and span not in before]
    for name, chosen in (("Preparation", before), ("Build", build), ("Extensions", others), ("Tests", tests)):
        if chosen:
            yield name, packed(_of_span(span, axis) for span in chosen)


def _use(timeline: Timeline, axis: Axis) -> Iterator[str]:
    """Draw what was used: cores, memory, disk."""
    cores, later = timeline.head.cores or 1, timeline.samples[1:]
    busy = [(sample.at, sample.busy) for sample in later]
    running = at_once(((step.at, step.at + step.seconds) for step in timeline.steps), axis)
    if busy or timeline.steps:
        high = max([float(cores), *(value for _, value in busy), *(value for _, value in running)]) * 1.05
        words = [f"{swatch('gen')}cores busy, {mean(busy):.1f} on average" if busy else ""]
        words += [f"{swatch('cxx')}steps of ninja at once" if timeline.steps else ""]
        yield f"<div class='name'>{', '.join(filter(None, words))}</div>"
        curves = [("busy", buckets(busy, axis)), ("line", running)]
        yield area(curves, axis, most=high, line_at=(cores, counted(cores, "core")))
    memory = [(sample.at, float(sample.memory)) for sample in timeline.samples if sample.memory]
    if memory:
        yield "<div class='name'>memory of the run</div>" + _filled("memory", memory, axis)
    disk = [(sample.at, float(sample.disk)) for sample in timeline.samples if sample.disk]
    free = [(sample.at, float(sample.disk_free)) for sample in timeline.samples if sample.disk_free]
    if disk:
        yield "<div class='name'>the run's folder on disk</div>" + _filled("disk", disk, axis)
    elif free:
        least = min(value for _, value in free)
        said = f"free on the disk, {size(least)} at least"
        yield f"<div class='name'>{said}</div>" + _filled("disk", free, axis)


def _filled(kind: str, points: Sequence[tuple[float, float]], axis: Axis) -> str:
    peak = max(value for _, value in points)
    return area([(kind, buckets(points, axis))], axis, most=peak * 1.25, line_at=(peak, size(peak)))


def _share(kind: str, seconds: float, longest: float) -> str:
    return swatch(kind, f"{100 * seconds / (longest or 1):.0f}%")


def _of_step(step: Ran, axis: Axis) -> Bar:
    at = duration(max(0.0, step.at - axis.began))
    return Bar(
        began=step.at,
        ended=step.at + step.seconds,
        label="",
        title=f"{step.output}{_more(step)}: {precise(step.seconds)}, at {at}",
        kind=_kind(step),
    )


def _of_span(span: Span, axis: Axis) -> Bar:
    seconds, at = span.ended - span.began, duration(max(0.0, span.began - axis.began))
    return Bar(
        began=span.began,
        ended=span.ended,
        label=span.what.removeprefix("testing "),
        title=f"{span.what}: {precise(seconds)}, at {at}{', failed' if span.failed else ''}",
        kind=_kind_of(span),
    )


def _kind_of(span: Span) -> str:
    return "bad" if span.failed else "test" if span.kind == "test" else "phase"


def _kind(step: Ran) -> str:
    path = PurePosixPath(step.output)
    if path.suffix in (".o", ".obj"):
        # CUDA's files that are compiled as plain C++, in a rehearsal, are no CUDA
        return "cuda" if path.stem.endswith(".cu") else "cxx"
    if ".so" in path.suffixes or path.suffix in (".a", ".dylib") or path.parent.name == "bin":
        return "link"
    return "gen"


def _more(step: Ran) -> str:
    return f" and {step.outputs - 1} more" if step.outputs > 1 else ""
