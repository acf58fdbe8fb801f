"""Reads ninja's log of a build folder: each step with its points in time, in seconds since 1970.

A line has the start and the end of a step in milliseconds since the start of its ninja, a date of its output in
nanoseconds since 1970, the output and a hash. Several ninjas append to one log, which ninja may rewrite in any order.
The date places a ninja in time. Up to version 5 it is the output's own, about the step's end; since version 6 (ninja
1.12) it is the step's start. Exceptions are outputs that their command did not change, or changed late (``restat``).

Builds can write the log: every line may be wrong, but costs only its own step.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from groundwork import files
from groundwork.errors import IntegrityError

#: Below a config's state folder.
LOG = "tree/build/.ninja_log"
_MOST_BYTES = 32 << 20
_MOST_STEPS = 50_000
_LONGEST_NAME = 4096
_HEAD = re.compile(r"# ninja log v([5-7])\n")
_LINE = re.compile(r"(\d{1,10})\t(\d{1,10})\t(\d{1,19})\t([^\t]+)\t([0-9a-f]{1,16})")
#: First version whose dates are starts.
_DATED_BY_START = 6
#: Dates of one ninja's steps place its start within this many seconds.
_TOLERANCE = 2.0


@dataclass(frozen=True, kw_only=True)
class NinjaStep:
    """A finished step of ninja."""

    output: str  #: the first one of its outputs, relative to the build folder
    began: float
    ended: float


@dataclass(frozen=True, kw_only=True)
class _Line:
    start: float  #: seconds since the start of ninja
    end: float
    ninja_began: float  #: start of ninja, if the date is the usual one
    output: str


def read_ninja_log(state: Path) -> list[NinjaStep] | None:
    """Return the steps in the log of a config's tree, in the log's order; None if there is no readable log."""
    try:
        with files.open_regular(state / LOG, below=state) as file:
            content = file.read(_MOST_BYTES).decode(errors="replace")
    except (OSError, IntegrityError):
        return None
    head = _HEAD.match(content)
    if head is None:
        return None
    lines = deque(_lines(content[head.end() :], int(head[1])), maxlen=_MOST_STEPS)
    return list(_place(list(lines)))


def _lines(content: str, version: int) -> Iterator[_Line]:
    """Yield the well-formed lines; of a step with several outputs, only the first one."""
    seen: set[tuple[str | None, ...]] = set()
    for text in content.split("\n")[:-1]:  # the last one is empty, or being written
        fields = _LINE.fullmatch(text)
        if fields is None or len(fields[4]) > _LONGEST_NAME:
            continue
        step = fields.group(1, 2, 3, 5)
        start = int(fields[1]) / 1000
        end = int(fields[2]) / 1000
        if step in seen or end < start:
            continue
        seen.add(step)
        dated = start if version >= _DATED_BY_START else end
        yield _Line(start=start, end=end, ninja_began=int(fields[3]) / 1e9 - dated, output=fields[4])


def _place(lines: list[_Line]) -> Iterator[NinjaStep]:
    """Yield the steps of all lines, each placed by the start of its ninja.

    A line whose date does not fit that start belongs to another ninja if the next line has the same one, or if it is
    the last line and begins after the others. Otherwise only its date is unusual.
    """
    ninja_began = lines[0].ninja_began if lines else 0.0
    end_before = 0.0
    ended = 0.0
    for line, following in zip_longest(lines, lines[1:]):
        if following is None:
            is_confirmed = line.ninja_began + line.start > ended - _TOLERANCE
        else:
            is_confirmed = _fits(following, line.ninja_began)
        is_other_ninja = is_confirmed or line.end < end_before
        if is_other_ninja and not _fits(line, ninja_began):
            ninja_began = line.ninja_began
        end_before = line.end
        ended = ninja_began + line.end
        yield NinjaStep(output=line.output, began=ninja_began + line.start, ended=ended)


def _fits(line: _Line, ninja_began: float) -> bool:
    return abs(line.ninja_began - ninja_began) < _TOLERANCE
