"""Draws on a time axis: shapes as paths of SVG, which the page stretches to its width, and blocks with text.

Paths are `WIDTH` units wide. Blocks have their places in percent of the width, so that their text is not stretched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from megabuild.timeline.lanes import Interval

WIDTH = 1000
#: Seconds between two ticks.
_TICKS = (
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
    21600,
    43200,
    86400,
    172800,
    604800,
)
_MOST_TICKS = 8
#: Units between two neighbours, and the width of a box that would be invisible.
_GAP = 0.3
_NARROWEST = 0.3


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A stretch of time from the left edge to the right."""

    began: float
    ended: float

    def share(self, at: float) -> float:
        """Return the place of a point in time, 0 to 1; times outside are on the edges."""
        return min(1.0, max(0.0, (at - self.began) / (self.ended - self.began)))

    def x(self, at: float) -> float:
        return round(self.share(at) * WIDTH, 2)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a block is, in percent of the width."""

    left: float
    width: float


def place(axis: Axis, item: Interval) -> Place:
    left = axis.share(item.began) * 100
    return Place(left=round(left, 3), width=round(axis.share(item.ended) * 100 - left, 3))


@dataclass(frozen=True, kw_only=True)
class Tick:
    """A mark of the axis."""

    left: float  #: in percent
    seconds: int  #: since the axis's beginning


def ticks(axis: Axis) -> Iterator[Tick]:
    """Yield at most 9 marks at round numbers of seconds."""
    length = axis.ended - axis.began
    fitting = [step for step in _TICKS if length / step <= _MOST_TICKS]
    step = fitting[0] if fitting else int(length)
    for seconds in range(0, int(length) + 1, step):
        yield Tick(left=round(seconds / length * 100, 3), seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A height that lasts for a stretch of time."""

    began: float
    ended: float
    height: float  #: as a share of the full height


def area(axis: Axis, bars: Iterable[Bar], height: int) -> str:
    """Return the path of an area whose full height is ``height`` units; bars are in order, without overlaps."""
    parts: list[str] = []
    before: float | None = None
    for bar in bars:
        left = axis.x(bar.began)
        top = round(height * (1 - min(1.0, max(0.0, bar.height))), 1)
        if before != left:
            if before is not None:
                parts.append(f"V{height}Z")
            parts.append(f"M{left:g} {height}")
        before = axis.x(bar.ended)
        parts.append(f"V{top:g}H{before:g}")
    if parts:
        parts.append(f"V{height}Z")
    return "".join(parts)


def boxes(
    axis: Axis, items: Iterable[Interval], *, top: float, height: float, finest: float
) -> Iterator[str]:
    """Yield the paths of the boxes of one lane; neighbours narrower than ``finest`` units become one box."""
    left = 0.0
    right = 0.0
    is_open = False  # whether a box of narrow items is being collected
    for item in items:
        began = axis.x(item.began)
        ended = axis.x(item.ended)
        is_narrow = ended - began < finest
        if is_open and is_narrow and began - right < finest:
            right = max(right, ended)
            continue
        if is_open:
            yield _box(left, right, top, height)
        is_open = is_narrow
        left = began
        right = ended
        if not is_narrow:
            yield _box(began, ended - _GAP, top, height)
    if is_open:
        yield _box(left, right, top, height)


def _box(left: float, right: float, top: float, height: float) -> str:
    width = max(_NARROWEST, right - left)
    return f"M{left:g} {top:g}h{width:.2f}v{height:g}h{-width:.2f}z"
