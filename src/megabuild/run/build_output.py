"""Turns build scripts' output into steps (packages, phases, ninja's counters), and keeps each script's last lines."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from time import monotonic
from typing import NamedTuple

from groundwork.names import PackageId, package_name
from groundwork.progress import MARKER, Phases
from groundwork.text import counted
from megabuild.engine.job import Outcome, OutcomeKind
from megabuild.engine.logs import ENGINE, STAGING_SCRIPT, UNKNOWN, Script, ScriptKind, ScriptLine
from megabuild.status.status import logger

STAGING = "staging"
#: The phase of the Python swap, and the mark of the line with its figures.
SWAP = "swap"
#: Many lines, because ninja's other jobs print after the error of a failed one.
_REMEMBERED_LINES = 2000
_LONGEST_LINE = 100_000


class StepKind(Enum):
    """The events that build scripts announce."""

    PHASE = auto()  #: a phase began
    COUNT = auto()  #: ninja has done some more of its steps
    PACKAGE = auto()  #: a package's build script began
    TEST = auto()  #: a package's test began


@dataclass(frozen=True, kw_only=True)
class BuildStep:
    """A step that a build script announced."""

    kind: StepKind
    package: str = ""  #: package being built; empty for staging
    python: str = ""
    phase: str = ""
    done: int = 0
    total: int = 0


class Parser:
    """Turns log lines into steps, collects figures for the run's summary, and logs each Python swap."""

    def __init__(self) -> None:
        #: per Python: ninja's steps after the swap, and core objects among them
        self.swaps: dict[str, dict[str, int]] = {}
        self.staging_seconds = 0.0
        self._phases = Phases()
        self._script: Script | None = None
        self._began = monotonic()

    def feed(self, line: ScriptLine) -> Iterator[BuildStep]:
        """Yield the steps of one line."""
        package = line.package.name
        python = line.python
        if line.script != self._script and package != UNKNOWN:
            if self._script == STAGING_SCRIPT:
                self.staging_seconds = self._elapsed()
            self._script = line.script
            self._began = monotonic()
            self._phases = Phases()  # each script announces its own phases
            if line.kind is ScriptKind.TEST:
                yield BuildStep(kind=StepKind.TEST, package=package)
            elif package:
                yield BuildStep(kind=StepKind.PACKAGE, package=package, python=python)
            else:
                yield BuildStep(kind=StepKind.PHASE, phase=STAGING)
        step = self._phases.feed(line.text)
        if step is not None:
            yield BuildStep(
                kind=StepKind.COUNT if step.total else StepKind.PHASE,
                package=package,
                python=python,
                phase=step.phase,
                done=step.done,
                total=step.total,
            )
            return
        marker = MARKER.match(line.text)
        if marker is not None and marker[1] == SWAP:
            self._note_swap(marker[2])

    def _note_swap(self, text: str) -> None:
        """Keep the figures of a Python swap: ``from=3.12 to=3.13 steps=4 core=0``."""
        words = [word.partition("=") for word in text.split()]
        values = {name: value for name, _, value in words}
        with contextlib.suppress(KeyError, ValueError):  # not a line of the recipe's
            steps = int(values["steps"])
            core = int(values["core"])
            self.swaps[values["to"]] = {"steps": steps, "core": core}
            counts = f"{counted(steps, 'step')} to run, {counted(core, 'core object')} among them"
            logger.info("Python %s -> %s: %s", values.get("from", ""), values["to"], counts)

    def seconds_of(self, package: PackageId, *, with_staging: bool) -> float:
        """Return the duration of a new package's build script so far, and of the staging if it counts as its part.

        A package that only takes files of the staging has no script: 0 seconds.
        """
        running = self._elapsed()
        candidates = {Script(ScriptKind.BUILD, package.name, build) for build in ("", package.build_string)}
        own = running if self._script in candidates else 0.0
        if not with_staging:
            return own
        staging = running if self._script == STAGING_SCRIPT else self.staging_seconds
        return own + staging

    def _elapsed(self) -> float:
        """Return the seconds since the start of the last script."""
        return monotonic() - self._began


class Culprit(NamedTuple):
    """The script that failed."""

    package: str  #: empty for staging, or for rattler-build itself
    build_string: str  #: empty if the script does not know it
    what: str  #: for people: ``build of pytorch cuda130_py312_0``
    lines: list[str]  #: its last lines


class LogTail:
    """Keeps every script's last lines, because rattler-build tests built packages even after a failure."""

    def __init__(self, staged: str = "libtorch") -> None:
        self._staged = staged
        self._scripts: dict[Script, deque[str]] = {}

    def add(self, script: Script, text: str) -> None:
        """Keep a line of a script, or of the worker itself (``ENGINE``)."""
        self._scripts.setdefault(script, deque(maxlen=_REMEMBERED_LINES)).append(text[:_LONGEST_LINE])

    def culprit(self, outcome: Outcome, broken: Collection[str]) -> Culprit:
        """Return the script that failed; ``broken`` names the package files that failed their tests."""
        engine = list(self._scripts.get(ENGINE, ()))
        if outcome.kind is not OutcomeKind.TEST:
            script = self._last(ScriptKind.BUILD)
            return self._of_script(script) if script else Culprit("", "", "rattler-build", engine)
        names = {package_name(file_name) for file_name in broken}
        for script in reversed(self._scripts):
            if script.kind is ScriptKind.TEST and script.package in names:
                return self._of_script(script)
        built = self._last(ScriptKind.BUILD, with_package=True)
        if built is None:
            return Culprit("", "", "rattler-build", engine)
        # the check of a package's content prints nothing
        return Culprit(
            built.package, built.build_string, f"test of {built.package} {built.build_string}", engine
        )

    def _last(self, kind: ScriptKind, *, with_package: bool = False) -> Script | None:
        """Return the script of a kind that began last; ``with_package``: except the staging."""
        for script in reversed(self._scripts):
            if script.kind is kind and (script.package or not with_package):
                return script
        return None

    def _of_script(self, script: Script) -> Culprit:
        what = f"{script.kind.value} of {script.package} {script.build_string}".rstrip()
        if not script.package:
            what = f"staging of {self._staged}"
        lines = [*self._scripts[script], *self._scripts.get(ENGINE, ())]
        return Culprit(script.package, script.build_string, what, lines)
