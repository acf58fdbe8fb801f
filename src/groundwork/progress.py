"""Progress reports of slow steps, and the phases in the output of build scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from groundwork.text import size

#: The prefix of warnings.
WARNING = "! "
#: NINJA_STATUS as the build scripts set it: ``[12/1374 34.5s] ``. Several ninjas in parallel add their name and the
#: steps of all: ``[1/3 34.5s _knn_cpu of 30] ``
_NINJA = re.compile(r"^\[(\d+)/(\d+) \d+(?:\.\d+)?s(?: (?P<name>\S+) of (?P<all>\d+))?\] ")
#: Messages of the build scripts to the driver.
MARKER = re.compile(r"^::megabuild:: (\w[\w-]*)\s*(.*)$")
#: The message that a phase begins.
_PHASE = re.compile(r"^::megabuild:: phase\s+(\S+)")
_PHASES = {
    "staging": "environment",
    "sync": "unpacking the source",
    "python": "Python side",
    "split": "taking the wheel apart",
    "normalise": "making the package reproducible",
}


@dataclass(frozen=True, kw_only=True)
class Preparing:
    """The progress of one step, from ``done == 0`` to ``done == total`` or to its failure; see :func:`preparing`."""

    what: str  #: ``downloading 3 wheels``
    done: int = 0
    total: int = 0  #: 0: unknown
    unit: str = ""  #: ``bytes``, ``packages``
    has_failed: bool = False  #: the step ended early

    @property
    def has_ended(self) -> bool:
        """Whether this is the step's last report."""
        return self.has_failed or 0 < self.total <= self.done

    def __str__(self) -> str:
        if self.total and self.unit == "bytes":
            return f"{self.what} ({size(self.total)})"
        return self.what


#: A callback for progress reports, called from any thread.
Notes = Callable[["str | Preparing"], None]


@contextmanager
def preparing(report: Notes, what: str, *, total: int = 0, unit: str = "") -> Iterator[Callable[[int], None]]:
    """Report the begin and the end of a step, also of one that fails; call the yielded function with what is done.

    ``total``: 0 if unknown. Without the last report a display would show the step until the command ends.
    """
    last = Preparing(what=what, total=total, unit=unit)
    report(last)

    def advance(done: int) -> None:
        nonlocal last
        last = replace(last, done=done)
        report(last)

    try:
        yield advance
    except BaseException:
        if not last.has_ended:
            report(replace(last, has_failed=True))
        raise
    if not last.has_ended:
        all_of_it = total or 1
        report(replace(last, done=all_of_it, total=all_of_it))


@dataclass(frozen=True, kw_only=True)
class Step:
    """The start of a phase, or ninja's counter in it."""

    #: ``sync``, ``configure``, ``compile``, ``install``, ``swap``, ``python`` or ``package``; the engine adds
    #: ``staging`` and ``test``, the driver ``normalise``
    phase: str
    done: int = 0
    total: int = 0  #: 0: the phase begins


def title(package: str, python: str, phase: str) -> str:
    """Return a phase's title: ``libtorch: compile``, ``pytorch 3.12: Python side``."""
    return f"{' '.join(filter(None, (package, python)))}: {_PHASES.get(phase, phase)}"


class Phases:
    """Reads phases and ninja's progress from the output of build scripts."""

    def __init__(self) -> None:
        self._phase = ""
        self._side_by_side: dict[str, int] = {}

    def feed(self, line: str) -> Step | None:
        """Return the step that a line of output reports, or None."""
        counter = _NINJA.match(line)
        if counter is not None:
            return self._count(counter)
        begun = _PHASE.match(line)
        if begun is None:
            return None
        self._phase = begun[1]
        self._side_by_side.clear()
        return Step(phase=self._phase)

    def _count(self, counter: re.Match[str]) -> Step:
        done = int(counter[1])
        total = int(counter[2])
        if counter["name"] is not None:
            self._side_by_side[counter["name"]] = done
            done = sum(self._side_by_side.values())
            total = int(counter["all"])
        return Step(phase=self._phase, done=done, total=total)
