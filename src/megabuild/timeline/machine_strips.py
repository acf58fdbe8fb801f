"""Draws the strips of one machine: used and idle cores, and the memory of the runs."""

from __future__ import annotations

from dataclasses import dataclass

from megabuild.timeline.drawing import Axis, Bar, area
from megabuild.timeline.usage import Usage

#: Units of the strips' heights.
_CORES_HEIGHT = 120
_MEMORY_HEIGHT = 40


@dataclass(frozen=True, kw_only=True)
class CoresStrip:
    """Used and idle cores; the shares are parts of all core seconds."""

    host: str
    cores: int
    measured: bool  #: False: ninja's steps count as cores
    height: int
    known: str  #: path of all times with a sample, in which idle cores show
    busy: str  #: path of the cores that any program uses
    used: str  #: path of the cores that the runs use
    used_share: float
    other_share: float
    idle_share: float
    idle_core_seconds: float
    core_seconds: float


@dataclass(frozen=True, kw_only=True)
class MemoryStrip:
    """Memory of the runs."""

    height: int
    used: str  #: path
    most: int  #: bytes, the full height
    limit: int  #: bytes


def draw_cores(axis: Axis, usage: Usage) -> CoresStrip:
    known: list[Bar] = []
    busy: list[Bar] = []
    used: list[Bar] = []
    for stretch in usage.stretches:
        mine = stretch.cores / usage.cores
        every = mine + stretch.other_cores / usage.cores
        known.append(Bar(began=stretch.began, ended=stretch.ended, height=1.0))
        busy.append(Bar(began=stretch.began, ended=stretch.ended, height=every))
        used.append(Bar(began=stretch.began, ended=stretch.ended, height=mine))
    used_share = usage.used_core_seconds / usage.core_seconds
    idle_share = usage.idle_core_seconds / usage.core_seconds
    return CoresStrip(
        host=usage.host,
        cores=usage.cores,
        measured=usage.measured,
        height=_CORES_HEIGHT,
        known=area(axis, known, _CORES_HEIGHT),
        busy=area(axis, busy, _CORES_HEIGHT),
        used=area(axis, used, _CORES_HEIGHT),
        used_share=used_share,
        other_share=max(0.0, 1 - used_share - idle_share),
        idle_share=idle_share,
        idle_core_seconds=usage.idle_core_seconds,
        core_seconds=usage.core_seconds,
    )


def draw_memory(axis: Axis, usage: Usage) -> MemoryStrip | None:
    """Return the strip of a machine's memory; None if it was not measured."""
    most = max(stretch.memory for stretch in usage.stretches)
    if not most:
        return None
    bars: list[Bar] = []
    for stretch in usage.stretches:
        bars.append(Bar(began=stretch.began, ended=stretch.ended, height=stretch.memory / most))
    return MemoryStrip(
        height=_MEMORY_HEIGHT, used=area(axis, bars, _MEMORY_HEIGHT), most=most, limit=usage.memory
    )
