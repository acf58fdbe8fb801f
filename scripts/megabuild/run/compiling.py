"""What compilers are at, and what the object cache answered: read as a build appends it, which is not trusted."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from groundwork import files
from groundwork.errors import IntegrityError
from groundwork.run_state import InFlight
from megabuild.engine.compiler_gate import BEGUN, NOTES

_LINE = re.compile(rb"([>=+-]) [0-9]{1,15} ([!-~]{1,300})(?: [0-9]{1,9})?")
#: No build writes that much between two looks; more of one is read at the next.
_MOST_BYTES = 256 << 10
#: More compilers than this do not run at once; of those that were killed, nothing says that they ended.
_MOST_OBJECTS = 512


class Tail:
    """The lines that are new in a file below a folder, the file and the folders in between being a build's."""

    def __init__(self, path: Path, below: Path) -> None:
        self._path, self._below = path, below
        self._file: tuple[int, int] | None = None
        self._at = 0

    def remove(self) -> None:
        """Begin with no file."""
        self._path.unlink(missing_ok=True)

    def lines(self) -> list[bytes]:
        """Return whole lines since the last call; some of them, where there are very many."""
        try:
            with files.open_regular(self._path, below=self._below) as file:
                status = os.fstat(file.fileno())
                if (status.st_dev, status.st_ino) != self._file or status.st_size < self._at:
                    self._file, self._at = (status.st_dev, status.st_ino), 0
                if status.st_size == self._at:
                    return []
                file.seek(self._at)
                data = file.read(_MOST_BYTES)
        except (OSError, IntegrityError):
            self._file = None  # the next one may have its number
            return []
        whole, end, _ = data.rpartition(b"\n")
        if end:
            self._at += len(whole) + 1
            return whole.split(b"\n")
        self._at += len(data) if len(data) == _MOST_BYTES else 0  # no line of ours is that long
        return []


class InFlightObjects:
    """The objects that are being compiled in a task, as the gate before the compilers notes them."""

    def __init__(self, state: Path, clock: Callable[[], float] = time.time) -> None:
        self._tail = Tail(state / "tmp" / NOTES, state)
        self._clock = clock
        self._since: dict[str, float] = {}

    def clear(self) -> None:
        """Forget what was begun before the last look: another step is going on now."""
        self._since.clear()

    def look(self) -> tuple[InFlight, ...]:
        """Return them, the oldest first; times are those of the look that saw them first."""
        for line in self._tail.lines():
            if match := _LINE.fullmatch(line):
                name = match[2].decode()
                self._since.pop(name, None)
                if match[1] == BEGUN:
                    self._since[name] = self._clock()
        for name in list(self._since)[:-_MOST_OBJECTS]:
            del self._since[name]
        return tuple(InFlight(name=name, since=since) for name, since in self._since.items())
