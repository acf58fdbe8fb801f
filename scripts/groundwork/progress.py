"""From a build script's output to events: the phases that it announces, and ninja's counters in them."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable

from groundwork.events import PhaseStarted, Progress

#: What the build scripts set NINJA_STATUS to: ``[12/1374 34.5s] ``; where several ninjas run side by side, each with
#: its name and the steps of all: ``[1/3 34.5s _knn_cpu of 30] ``
_NINJA = re.compile(r"^\[(\d+)/(\d+) (\d+(?:\.\d+)?)s(?: (?P<one>\S+) of (?P<all>\d+))?\] ")
#: What the build scripts announce.
MARKER = re.compile(r"^::megabuild:: (\w[\w-]*)\s*(.*)$")
#: What a step makes: at the end of CMake's sentences, else what the command itself says.
_MAKES = re.compile(r"(?:Building|Linking) .*?(\S+)$|.* -o (\S+)(?: |$)")
#: Any other description, but no command, in which there could be anything.
_DESCRIPTION = re.compile(r"[\w .,:/+-]{1,100}", re.ASCII)
_LONGEST_NAME = 300
_WINDOW_SECONDS = 90.0
_LEAST_SECONDS = 2.0


class Eta:
    """Time left at the rate of the last minute and a half: files differ, and a whole build's mean is slow to notice."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def update(self, done: int, total: int) -> float | None:
        """Take a counter; return the seconds left, or None as long as there is too little to go by."""
        now = self._clock()
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()  # ninja was started again
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[0][0] > _WINDOW_SECONDS:
            self._seen.popleft()
        since, before = self._seen[0]
        if now - since < _LEAST_SECONDS or done <= before:
            return 0.0 if done >= total else None
        return (total - done) * (now - since) / (done - before)


class Phases:
    """Follows the phases of build scripts, and how far ninja is in them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._eta = Eta(clock)
        self._phase = ""
        self._beside: dict[str, int] = {}

    def script_began(self) -> None:
        """Forget the phase: another script announces its own."""
        self._phase = ""

    def feed(self, line: str, package: str, python: str) -> PhaseStarted | Progress | None:
        """Return what a line says, if anything; package and Python are those that the script is for."""
        if match := _NINJA.match(line):
            done, total = self._count(match)
            return Progress(
                phase=self._phase,
                package=package,
                python=python,
                done=done,
                total=total,
                seconds=float(match[3]),
                eta_seconds=self._eta.update(done, total),
                step_name=_step_name(line[match.end() :]),
            )
        marker = MARKER.match(line)
        if marker is None or marker[1] != "phase" or not marker[2]:
            return None
        self._phase = marker[2].split()[0]
        self._eta = Eta(self._clock)
        self._beside.clear()
        return PhaseStarted(phase=self._phase, package=package, python=python)

    def _count(self, match: re.Match[str]) -> tuple[int, int]:
        """Return the steps done and the steps in all, of all ninjas that run side by side."""
        done, total = int(match[1]), int(match[2])
        if match["one"] is None:
            return done, total
        self._beside[match["one"]] = done
        return sum(self._beside.values()), int(match["all"])


def _step_name(text: str) -> str:
    """Return what a step makes, as ``.ninja_log`` names it where that can be seen; else its description, or nothing."""
    match = _MAKES.match(text)
    name = (match and (match[1] or match[2])) or (text if _DESCRIPTION.fullmatch(text) else "")
    return name if len(name) <= _LONGEST_NAME and name.isascii() and name.isprintable() else ""
