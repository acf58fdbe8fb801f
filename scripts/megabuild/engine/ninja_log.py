"""What ninja notes of its steps in ``.ninja_log``, with the times of day at which they ran.

A line has start and end in milliseconds since that ninja was started, a date in nanoseconds since 1970, the output, and
a hash of the command. Since ninja 1.11 (version 6 of the log) the date is that of the command's start, but for rules
that say ``restat``, whose outputs' date it is; before, it was that of every output. When a ninja was started stands
nowhere: it is date less start, for most of its lines the same.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from groundwork import files
from groundwork.errors import IntegrityError

NAME = ".ninja_log"
_HEAD = b"# ninja log v"
_DATED_BY_OUTPUT = 5
#: A file system's clock is at most so far behind; lines of one ninja agree to this.
_AGREE = 0.1
#: A build may write into its log what it likes: no more of it is read. PyTorch's has 14,000 lines of generators alone.
MOST_BYTES = 64 << 20
#: What others may keep as an output's name.
_NAME = re.compile(r"[ -~]{1,300}")


class Step(NamedTuple):
    """A command that ninja ran."""

    began: float  #: seconds since 1970
    seconds: float
    output: str  #: the first of its outputs


class _Command(NamedTuple):
    start: float
    end: float
    date: float
    hash: bytes


def steps(content: bytes) -> dict[_Command, Step]:
    """Return the steps in a log, one for all outputs of a command; lines that make no sense are left out."""
    head, _, _ = content.partition(b"\n")
    version = head.removeprefix(_HEAD) if head.startswith(_HEAD) else b""
    by_output = version.isdigit() and int(version[:4]) <= _DATED_BY_OUTPUT
    commands: dict[_Command, list[str]] = {}
    for text in content.split(b"\n")[:-1]:  # ninja may be writing the last line
        if line := _line(text, by_output=by_output):
            commands.setdefault(line[0], []).append(line[1])
    starts = _starts(sorted(date - start for start, _, date, _ in commands))
    found = {}
    for command, outputs in commands.items():
        start, end, date, _ = command
        base = _base(start, end, date, starts)
        # PyTorch's generators name each file by its path below the build folder, and once more by its whole path
        own = [name for name in outputs if not os.path.isabs(name)] or outputs
        found[command] = Step(began=base + start, seconds=end - start, output=own[0])
    return found


def seconds(content: bytes) -> dict[str, float]:
    """Return the seconds of every step by its output, as they ended; of a step that ran twice the last time counts."""
    found: dict[str, float] = {}
    for step in sorted(steps(content).values(), key=lambda step: step.began + step.seconds):
        if _NAME.fullmatch(step.output):
            found.pop(step.output, None)
            found[step.output] = step.seconds
    return found


def _line(text: bytes, *, by_output: bool) -> tuple[_Command, str] | None:
    parts = text.split(b"\t")
    if len(parts) != 5 or not all(part.isdigit() and len(part) < 20 for part in parts[:3]):
        return None
    start, end, date = int(parts[0]) / 1e3, int(parts[1]) / 1e3, int(parts[2]) / 1e9
    if end < start:
        return None
    date -= end - start if by_output else 0.0
    return _Command(start, end, date, parts[4]), parts[3].decode(errors="replace")


def _starts(bases: Sequence[float]) -> list[float]:
    """Return when ninjas were started: points in time on which two commands agree."""
    agreed: list[float] = []
    for one, other in pairwise(bases):
        if other - one <= _AGREE and (not agreed or one - agreed[-1] > _AGREE):
            agreed.append(one)
    return agreed


def _base(start: float, end: float, date: float, starts: Sequence[float]) -> float:
    """Return when a command's ninja was started; where no other tells, too late by the command's duration at most."""
    latest = date - start + _AGREE
    at = bisect_left(starts, latest) - 1
    # an output may have been written at any time while its command ran
    if at >= 0 and starts[at] >= latest - 2 * _AGREE - (end - start):
        return starts[at]
    return date - start
