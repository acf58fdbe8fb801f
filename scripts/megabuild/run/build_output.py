"""From the output of a run's build scripts to steps: packages, phases, ninja's counters; and what each said last."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from groundwork.progress import MARKER, Phases
from groundwork.text import counted
from megabuild.engine.job import Outcome
from megabuild.engine.logs import UNKNOWN, ScriptLine

STAGING = "staging"
#: In a failed build, other jobs of ninja's go on and print after the error.
_REMEMBERED_LINES, _LONGEST_LINE = 2000, 100_000


@dataclass(frozen=True, kw_only=True)
class BuildStep:
    """What the build scripts have announced."""

    #: ``phase``, ``count`` (ninja's), ``package`` (its build script began), ``test`` (its test began) or ``sentence``
    kind: str
    package: str = ""  #: what is being built, none for staging
    python: str = ""
    label: str = ""  #: the package's, with its version
    phase: str = ""
    done: int = 0
    total: int = 0
    sentence: str = ""


class Parser:
    """Turns log lines into steps, and keeps what a run's summary needs of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        #: per Python: ninja's steps after the swap, core objects among them
        self.swaps: dict[str, dict[str, int]] = {}
        self.staging_seconds = 0.0
        self._clock = clock
        self._phases = Phases()
        self._script: tuple[str, str, str] = ("", "", "")
        self._began = clock()

    def feed(self, line: ScriptLine) -> Iterator[BuildStep]:
        """Give the steps of one line."""
        package, python = line.package.name, line.python
        if line.script != self._script and package != UNKNOWN:
            if self._script == ("build", "", ""):
                self.staging_seconds = self.seconds()
            self._script, self._began = line.script, self._clock()
            self._phases = Phases()  # another script announces its own
            if line.kind == "test":
                yield BuildStep(kind="test", package=package)
            elif package:
                yield BuildStep(kind="package", package=package, python=python, label=line.package.label)
            else:
                yield BuildStep(kind="phase", phase=STAGING)
        if step := self._phases.feed(line.text):
            kind = "count" if step.total else "phase"
            yield BuildStep(
                kind=kind, package=package, python=python, phase=step.phase, done=step.done, total=step.total
            )
        elif (marker := MARKER.match(line.text)) and marker[1] == "swap":
            values = dict(word.split("=", 1) for word in marker[2].split() if "=" in word)
            with contextlib.suppress(KeyError, ValueError):  # not the recipe's own line
                steps, core = int(values["steps"]), int(values["core"])
                self.swaps[values["to"]] = {"steps": steps, "core": core}
                counts = f"{counted(steps, 'step')} to run, {counted(core, 'core object')} among them"
                sentence = f"Python {values.get('from', '')} -> {values['to']}: {counts}"
                yield BuildStep(kind="sentence", sentence=sentence)

    def seconds(self) -> float:
        """Seconds since the build script that is running, or was the last to run, began; none where that was a test."""
        # a package without a script of its own comes right after the test of another one
        return 0.0 if self._script[0] == "test" else self._clock() - self._began


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
        self._scripts: dict[tuple[str, str, str], deque[str]] = {}
        self._engine = deque[str](maxlen=_REMEMBERED_LINES)

    def add(self, line: ScriptLine) -> None:
        """Keep a script's line."""
        lines = self._scripts.setdefault(line.script, deque(maxlen=_REMEMBERED_LINES))
        lines.append(line.text[:_LONGEST_LINE])

    def add_engine(self, text: str) -> None:
        """Keep a line of the worker itself."""
        self._engine.append(text[:_LONGEST_LINE])

    def culprit(self, outcome: Outcome, broken: Collection[str]) -> Culprit:
        """Return the script that an outcome is about; ``broken`` package files failed their tests."""
        wanted, engine = "test" if outcome.kind == "test" else "build", list(self._engine)
        for kind, package, build_string in reversed(self._scripts):
            if kind == wanted and (kind != "test" or any(name.startswith(f"{package}-") for name in broken)):
                what = f"{kind} of {package} {build_string}".rstrip()
                what = what if package else f"staging of {self._staged}"
                lines = self._scripts[kind, package, build_string]
                return Culprit(package, build_string, what, [*lines, *engine])
        built = next((key for key in reversed(self._scripts) if key[0] == "build" and key[1]), None)
        if wanted == "test" and built:  # a check of a package's contents, which prints nothing
            return Culprit(built[1], built[2], f"test of {built[1]} {built[2]}", engine)
        return Culprit("", "", "the engine", engine)
