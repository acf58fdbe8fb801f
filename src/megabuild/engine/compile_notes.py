"""Reads the notes of the compiler launcher: which objects of an attempt a compiler made, in place of the object cache.

A line has the second in which a compiler was started, and its object as ninja names it. Lines without an object say
since when there are notes. Builds can write the file: every line may be wrong, but costs only its own step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from groundwork import files
from groundwork.errors import IntegrityError

#: In a task's state folder. The next attempt at the task begins with an empty folder.
NOTES = "tmp/compiles"
_MOST_BYTES = 8 << 20
#: A note has whole seconds, rounded down, and the dates of files may lag by a few milliseconds.
_EARLIER = 1.5
_LATER = 0.5


@dataclass(frozen=True, kw_only=True)
class CompileNotes:
    """The compilers that were started since ``since``."""

    since: float | None = None  #: seconds since 1970; None if there are no notes
    starts: Mapping[str, Sequence[float]] = field(default_factory=dict)  #: by object, in seconds since 1970

    def covers(self, began: float) -> bool:
        """Return whether a compile at this time would have a note."""
        return self.since is not None and began >= self.since - _EARLIER

    def was_compiled(self, made: str, began: float, ended: float) -> bool:
        """Return whether a compiler was started for an object in a stretch of time."""
        return any(began - _EARLIER <= start <= ended + _LATER for start in self.starts.get(made, ()))


def read_notes(state: Path) -> CompileNotes:
    """Return the notes below a task's state folder; none if they cannot be read."""
    content = ""
    with contextlib.suppress(OSError, IntegrityError), files.open_regular(state / NOTES, below=state) as file:
        content = file.read(_MOST_BYTES).decode(errors="replace")
    since = None
    starts: dict[str, list[float]] = {}
    for line in content.split("\n")[:-1]:  # the last one is empty, or being written
        second, _, made = line.partition(" ")
        if not second.isdecimal() or len(second) > 12:
            continue
        start = float(second)
        since = start if since is None else min(since, start)
        if made:
            starts.setdefault(made, []).append(start)
    return CompileNotes(since=since, starts=starts)
