"""What a slow step reports while it goes on: sentences, how far it is, and the phases of a build script's output."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from groundwork.text import size

#: Begins a sentence that must not be missed.
WARNING = "! "
#: What the build scripts set NINJA_STATUS to: ``[12/1374 34.5s] ``; where several ninjas run side by side, each with
#: its name and the steps of all: ``[1/3 34.5s _knn_cpu of 30] ``
_NINJA = re.compile(r"^\[(\d+)/(\d+) \d+(?:\.\d+)?s(?: (?P<name>\S+) of (?P<all>\d+))?\] ")
#: What the build scripts announce.
MARKER = re.compile(r"^::megabuild:: (\w[\w-]*)\s*(.*)$")
_PHASES = {
    "staging": "environment",
    "sync": "unpacking the source",
    "python": "Python side",
    "split": "taking the wheel apart",
    "normalise": "making the package reproducible",
}


@dataclass(frozen=True, kw_only=True)
class Preparing:
    """How far one step is: it begins with nothing done, and is over with all."""

    what: str  #: ``downloading 3 wheels``
    done: int = 0
    total: int = 0  #: 0 where nobody knows
    unit: str = ""  #: ``bytes``, ``packages``

    def __str__(self) -> str:
        return f"{self.what} ({size(self.total)})" if self.total and self.unit == "bytes" else self.what


#: Takes what a step reports, from any thread.
Notes = Callable[["str | Preparing"], None]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A phase that begins, or ninja's counter in it."""

    #: ``sync``, ``configure``, ``compile``, ``install``, ``swap``, ``python``, ``package``; ``staging`` and ``test``
    #: come from the engine itself, ``normalise`` from the driver
    phase: str
    done: int = 0
    total: int = 0  #: 0: the phase begins


def title(package: str, python: str, phase: str) -> str:
    """Return what goes on: ``libtorch: compile``, ``pytorch 3.12: Python side``."""
    return f"{' '.join(filter(None, (package, python)))}: {_PHASES.get(phase, phase)}"


class Phases:
    """Follows the phases of build scripts, and how far ninja is in them."""

    def __init__(self) -> None:
        self._phase = ""
        self._side_by_side: dict[str, int] = {}

    def feed(self, line: str) -> Step | None:
        """Return what a line says, if anything."""
        if match := _NINJA.match(line):
            done, total = int(match[1]), int(match[2])
            if match["name"] is not None:
                self._side_by_side[match["name"]] = done
                done, total = sum(self._side_by_side.values()), int(match["all"])
            return Step(phase=self._phase, done=done, total=total)
        marker = MARKER.match(line)
        if marker is None or marker[1] != "phase" or not marker[2]:
            return None
        self._phase = marker[2].split()[0]
        self._side_by_side.clear()
        return Step(phase=self._phase)
