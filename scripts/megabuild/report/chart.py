"""Rows of bars and areas over one time axis, as SVG that any browser draws without help.

Everything across is in per cent, so that a drawing gets as wide as its place: a telephone, a sheet of paper, or sixteen
screens side by side, where the page is asked to show more detail.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from groundwork.text import duration, plain

_BUCKETS = 500
#: Seconds between marks of the axis.
_NICE = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    10800,
    14400,
    21600,
    43200,
    86400,
    172800,
)
_MARKS = 6


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Something that went on from one time to another."""

    began: float
    ended: float
    label: str  #: what is written into it, where it is long enough for that
    title: str  #: what is said where one points at it
    kind: str  #: class of the style sheet


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The time that a page shows."""

    began: float
    seconds: float

    def at(self, when: float) -> float:
        """Return where that is, in per cent."""
        return max(0.0, min(100.0, 100 * (when - self.began) / self.seconds))


def text(words: str) -> str:
    """Return words as they may stand anywhere in the page: builds write names and lines, and no markup comes of it."""
    return escape(plain(words))


def packed(bars: Iterable[Bar]) -> list[list[Bar]]:
    """Return bars in as few rows as they fit into, none over another: a row is taken again once it is free."""
    rows: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda one: (one.began, one.ended)):
        # ninja's clock has milliseconds: what ends in one may begin another in the same
        free = (row for row in rows if row[-1].ended <= bar.began + 0.002)
        row = next(free, None)
        if row is None:
            rows.append([bar])
        else:
            row.append(bar)
    return rows


def rows(bars: Sequence[Sequence[Bar]], axis: Axis, *, height: float, gap: float, labels: bool) -> str:
    """Draw rows of bars, the first at the top."""
    pitch = height + gap
    lines = [f'<svg class="wide" role="img" height="{max(1, len(bars)) * pitch:.4g}">', grid(axis)]
    for number, row in enumerate(bars):
        y = number * pitch
        for count, bar in enumerate(row):
            x, end = axis.at(bar.began), axis.at(bar.ended)
            place = f'x="{x:.6g}%" width="{max(end - x, 0.02):.3g}%"'
            shade = bar.kind + (" b" if count % 2 else "")
            title = f"<title>{text(bar.title)}</title>"
            if labels:
                inside = f'<text x="4" y="{height - 5:g}">{text(bar.label)}</text>'
                lines.append(
                    f'<svg {place} y="{y:g}" height="{height:g}">{title}'
                    f'<rect class="{shade}" width="100%" height="{height:g}" rx="2"/>{inside}</svg>'
                )
            else:
                lines.append(
                    f'<rect class="{shade}" {place} y="{y:.4g}" height="{height:.4g}">{title}</rect>'
                )
    return "\n".join([*lines, "</svg>"])


def area(
    series: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    axis: Axis,
    *,
    most: float,
    line_at: tuple[float, str] | None = None,
) -> str:
    """Draw curves over time, each with the class of its style, as areas but for those of class ``line``.

    ``line_at`` marks a level.
    """
    high = most or 1.0
    curves: list[str] = []
    for kind, points in series:
        if not points:
            continue
        drawn = [f"{10 * axis.at(when):.4g},{100 * (1 - value / high):.3g}" for when, value in points]
        if kind != "line":
            first, last = drawn[0].split(",")[0], drawn[-1].split(",")[0]
            curves.append(f'<polygon class="{kind}" points="{first},100 {" ".join(drawn)} {last},100"/>')
        else:
            curves.append(f'<polyline class="{kind}" points="{" ".join(drawn)}"/>')
    mark = ""
    if line_at is not None:
        y = 100 * (1 - line_at[0] / high)
        mark = (
            f'<line class="mark" x1="0" x2="100%" y1="{y:.4g}%" y2="{y:.4g}%"/>'
            f'<text class="of" x="3" y="{y:.4g}%" dy="{11 if y < 20 else -3}">{text(line_at[1])}</text>'
        )
    inner = f'<svg viewBox="0 0 1000 100" preserveAspectRatio="none" width="100%" height="100%">{"".join(curves)}</svg>'
    return f'<svg class="wide chart" role="img" height="64">{grid(axis)}{inner}{mark}</svg>'


def buckets(points: Sequence[tuple[float, float]], axis: Axis) -> list[tuple[float, float]]:
    """Return at most a few hundred points of a series, the highest of each stretch."""
    if len(points) <= _BUCKETS:
        return list(points)
    best: dict[int, tuple[float, float]] = {}
    for when, value in points:
        at = int(_BUCKETS * (when - axis.began) / axis.seconds)
        if at not in best or value > best[at][1]:
            best[at] = (when, value)
    return [best[at] for at in sorted(best)]


def at_once(bars: Iterable[tuple[float, float]], axis: Axis) -> list[tuple[float, float]]:
    """Return how many stretches of time ran at once, on average over each of a few hundred parts."""
    width = axis.seconds / _BUCKETS
    amount = [0.0] * _BUCKETS
    for began, ended in bars:
        first = max(0, int((began - axis.began) / width))
        last = min(_BUCKETS - 1, int((ended - axis.began) / width))
        for number in range(first, last + 1):
            low = axis.began + number * width
            amount[number] += max(0.0, min(ended, low + width) - max(began, low)) / width
    return [(axis.began + (number + 0.5) * width, value) for number, value in enumerate(amount)]


def marks(axis: Axis, zoom: int = 1) -> list[int]:
    """Return the seconds from the beginning at which the axis has marks, where it is drawn ``zoom`` times as wide."""
    step = next((nice for nice in _NICE if axis.seconds / nice <= _MARKS * zoom), None)
    step = step or 86400 * math.ceil(axis.seconds / 86400 / _MARKS / zoom)
    return [number * step for number in range(int(axis.seconds / step) + 1)]


def grid(axis: Axis) -> str:
    """Draw a line at each mark."""
    places = (100 * at / axis.seconds for at in marks(axis) if at)
    return "".join(f'<line class="grid" x1="{x:.4g}%" x2="{x:.4g}%" y1="0" y2="100%"/>' for x in places)


def ruler(axis: Axis, zooms: Sequence[int]) -> str:
    """Draw the axis itself, time since the beginning: for each zoom the marks that it adds, in a class ``m<zoom>``."""
    words, there = [], set[int]()
    for zoom in zooms:
        for at in marks(axis, zoom):
            if at in there:
                continue
            there.add(at)
            x = 100 * at / axis.seconds
            anchor = "start" if x < 4 / zoom else "end" if x > 100 - 4 / zoom else "middle"
            said = duration(at) if at else "0"
            words.append(f'<text class="of m{zoom}" x="{x:.5g}%" y="12" text-anchor="{anchor}">{said}</text>')
    return f'<svg class="wide" role="img" height="16">{"".join(words)}</svg>'


def mean(points: Sequence[tuple[float, float]]) -> float:
    """Return the mean over time of values that are each of the stretch before them."""
    stretches = [(after[0] - before[0], after[1]) for before, after in pairwise(points)]
    whole = sum(length for length, _ in stretches)
    return sum(length * value for length, value in stretches) / whole if whole else 0.0
