"""What is known before anything was built here: tables made from builds elsewhere.

``shipped.json`` has, by kind of build, the seconds of phases and of ninja's steps: their number and mean CPU seconds by
folder. ``benchmarks/forecast.py`` makes it from what megabuild has learned somewhere. Kinds that nobody has measured
step by step are taken for larger ones of the same kind, by the CPU hours that :mod:`megabuild.plan.estimate` has
sources for.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from megabuild.forecast.known import Known
from megabuild.forecast.outline import COMPILE

FILE = Path(__file__).with_name("shipped.json")


@dataclass(frozen=True, kw_only=True)
class Table:
    """What one kind of build takes."""

    source: str  #: where the figures are from, in a sentence
    phases: Mapping[str, float]
    #: of each phase that is ninja's: folder and kind of file, how many there are, CPU seconds of each
    steps: Mapping[str, Sequence[tuple[str, int, float]]]


@dataclass(frozen=True, kw_only=True)
class _Like:
    """A kind that is like a measured one, but for so many CPU hours; phases take longer by the packages' size."""

    kind: str
    hours: float  #: of libtorch's compile
    python_hours: float
    phases: float = 1.0


_LIKE = {
    "debian-2": _Like(kind="debian-0", hours=2.9, python_hours=0.66),
    "debian-cuda-0": _Like(kind="debian-0", hours=3.4, python_hours=0.5, phases=1.5),
    "debian-cuda-2": _Like(kind="debian-0", hours=5.7, python_hours=0.7, phases=1.5),
    "official-cpu": _Like(kind="debian-0", hours=15, python_hours=1.5, phases=2.0),
    "official-cuda": _Like(kind="debian-0", hours=56, python_hours=2.4, phases=4.0),
    "wheel-cuda": _Like(kind="wheel-cpu", hours=0, python_hours=0, phases=2.0),
}


@functools.cache
def tables() -> dict[str, Table]:
    """Return all tables by their kind."""
    return msgspec.json.decode(FILE.read_bytes(), type=dict[str, Table])


@functools.cache
def known(kind: str, speed: float = 1.0) -> Known:
    """Return what is known of a kind of build, on a machine that needs ``speed`` times the CPU seconds of ours."""
    like = _LIKE.get(kind)
    table = tables().get(like.kind if like else kind)
    if table is None:
        return Known()
    steps: dict[str, float] = {}
    order: dict[str, list[str]] = {}
    for place, (phase, rows) in enumerate(table.steps.items()):
        total = sum(count * seconds for _, count, seconds in rows)
        wanted = (like.hours if phase == COMPILE else like.python_hours) * 3600 if like else total
        scale = speed * wanted / total if total else speed
        for folder, count, seconds in rows:
            for number in range(count):
                folder_, _, ending = folder.rpartition("*")
                # a Python's own objects may take something else than the same ones in libtorch's compile
                name = f"{folder_}#{place}.{number}{ending}" if ending.endswith(".o") else folder
                steps[name] = scale * seconds
                order.setdefault(phase, []).append(name)
    phases = {
        name: speed * seconds * (like.phases if like else 1.0) for name, seconds in table.phases.items()
    }
    return Known(phases=phases, steps=steps, order=order)
