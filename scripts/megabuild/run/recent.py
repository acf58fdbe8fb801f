"""The last lines of every script of a task, and the first ones of an error: what explains a failure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from megabuild.engine.job import Outcome
from megabuild.engine.logs import ScriptLine
from megabuild.run.first_error import FAILED, telling

#: What scripts announce.
PHASE = "::megabuild:: phase "
_REMEMBERED_LINES = 400
_CONTEXT_LINES = 3


class Culprit(NamedTuple):
    """The script that failed."""

    package: str  #: none: staging, or the engine itself
    build_string: str  #: where the script knows it
    what: str  #: in words
    lines: list[str]  #: what it said


class Recent:
    """Remembers what every script said last, since after a failure the engine goes on to test what it has built."""

    def __init__(self, staged: str = "libtorch") -> None:
        self._staged = staged
        self._scripts: dict[tuple[str, str, str], _Said] = {}
        self._engine = _Said()

    def add(self, line: ScriptLine) -> None:
        """Remember a script's line."""
        self._scripts.setdefault(line.script, _Said()).add(line.text)

    def add_engine(self, text: str) -> None:
        """Remember a line of the worker itself."""
        self._engine.add(text)

    def culprit(self, outcome: Outcome, broken: Collection[str]) -> Culprit:
        """Return what an outcome is about; ``broken`` package files failed their tests."""
        wanted, said = "test" if outcome.kind == "test" else "build", self._engine.lines()
        for kind, package, build_string in reversed(self._scripts):
            if kind == wanted and (kind != "test" or any(name.startswith(f"{package}-") for name in broken)):
                what = (
                    f"{kind} of {package} {build_string}".rstrip()
                    if package
                    else f"staging of {self._staged}"
                )
                lines = self._scripts[kind, package, build_string].lines()
                return Culprit(package, build_string, what, [*lines, *said])
        built = next(
            (script for script in reversed(self._scripts) if script[0] == "build" and script[1]), None
        )
        if wanted == "test" and built:  # a look at a package's contents, which prints nothing
            return Culprit(built[1], built[2], f"test of {built[1]} {built[2]}", said)
        return Culprit("", "", "the engine", said)


class _Said:
    """The last lines of one script, and those from its phase's first error on, which much may come after.

    While a step fails, as many others as there are jobs go on and are told of.
    """

    def __init__(self) -> None:
        self._last: deque[str] = deque(maxlen=_REMEMBERED_LINES)
        self._error: list[str] = []
        self._since = 0  #: lines from the first of these on
        self._of_ninja = False

    def add(self, text: str) -> None:
        """Take a line."""
        if text.startswith(PHASE):
            self._error, self._of_ninja = [], False
        of_ninja = FAILED.match(text) is not None
        if (not self._error and telling(text)) or (of_ninja and not self._of_ninja):
            self._error = [*list(self._last)[-_CONTEXT_LINES:], text]
            self._since, self._of_ninja = len(self._error), of_ninja
        elif self._error:
            self._since += 1
            if len(self._error) < _REMEMBERED_LINES:
                self._error.append(text)
        self._last.append(text)

    def lines(self) -> list[str]:
        """Return the error's lines that are not among the last ones, and these."""
        before = max(0, self._since - _REMEMBERED_LINES) if self._error else 0
        return [*self._error[:before], *self._last]
