"""Keep the last lines of every script of a task, and the first lines of an error."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from megabuild.engine.job import Outcome
from megabuild.engine.logs import ScriptLine
from megabuild.run.first_error import FAILED

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


class LogTail:
    """Keeps what every script printed last: after a failure the engine goes on to test the packages it has built."""

    def __init__(self, staged: str = "libtorch") -> None:
        self._staged = staged
        self._scripts: dict[tuple[str, str, str], _ScriptTail] = {}
        self._engine = _ScriptTail()

    def add(self, line: ScriptLine) -> None:
        """Keep a script's line."""
        self._scripts.setdefault(line.script, _ScriptTail()).add(line.text)

    def add_engine(self, text: str) -> None:
        """Keep a line of the worker itself."""
        self._engine.add(text)

    def culprit(self, outcome: Outcome, broken: Collection[str]) -> Culprit:
        """Return the script that an outcome is about; ``broken`` package files failed their tests."""
        wanted, engine = "test" if outcome.kind == "test" else "build", self._engine.lines()
        for kind, package, build_string in reversed(self._scripts):
            if kind == wanted and (kind != "test" or any(name.startswith(f"{package}-") for name in broken)):
                what = (
                    f"{kind} of {package} {build_string}".rstrip()
                    if package
                    else f"staging of {self._staged}"
                )
                lines = self._scripts[kind, package, build_string].lines()
                return Culprit(package, build_string, what, [*lines, *engine])
        built = next((key for key in reversed(self._scripts) if key[0] == "build" and key[1]), None)
        if wanted == "test" and built:  # a check of a package's contents, which prints nothing
            return Culprit(built[1], built[2], f"test of {built[1]} {built[2]}", engine)
        return Culprit("", "", "the engine", engine)


class _ScriptTail:
    """The last lines of one script, and those from the first error of its phase on.

    While a step fails, ninja's other jobs go on and print.
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
        of_ninja = text.startswith("FAILED: ")
        if (not self._error and FAILED.match(text)) or (of_ninja and not self._of_ninja):
            self._error = [*list(self._last)[-_CONTEXT_LINES:], text]
            self._since, self._of_ninja = len(self._error), of_ninja
        elif self._error:
            self._since += 1
            self._error += [text] if len(self._error) < _REMEMBERED_LINES else []
        self._last.append(text)

    def lines(self) -> list[str]:
        """Return the error's lines that are not among the last ones, and these."""
        before = max(0, self._since - _REMEMBERED_LINES) if self._error else 0
        return [*self._error[:before], *self._last]
