"""Turns build scripts' output into steps (packages, phases, ninja's counters), and keeps each script's last lines."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

from groundwork.names import PackageId
from groundwork.progress import MARKER, Phases
from groundwork.text import counted
from megabuild.engine.job import Outcome
from megabuild.engine.logs import UNKNOWN, ScriptLine
from megabuild.status.status import logger

STAGING = "staging"
#: The worker itself, in place of a script.
ENGINE = ("engine", "", "")
_STAGING_SCRIPT = ("build", "", "")
#: Many lines, because ninja's other jobs print after the error of a failed one.
_REMEMBERED_LINES, _LONGEST_LINE = 2000, 100_000


@dataclass(frozen=True, kw_only=True)
class BuildStep:
    """A step that a build script announced."""

    kind: str  #: ``phase``, ``count`` (ninja's), ``package`` (its build script began) or ``test`` (its test began)
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
        self._script: tuple[str, str, str] = ("", "", "")
        self._began = monotonic()

    def feed(self, line: ScriptLine) -> Iterator[BuildStep]:
        """Yield the steps of one line."""
        package, python = line.package.name, line.python
        if line.script != self._script and package != UNKNOWN:
            if self._script == _STAGING_SCRIPT:
                self.staging_seconds = self._elapsed()
            self._script, self._began = line.script, monotonic()
            self._phases = Phases()  # each script announces its own phases
            if line.kind == "test":
                yield BuildStep(kind="test", package=package)
            elif package:
                yield BuildStep(kind="package", package=package, python=python)
            else:
                yield BuildStep(kind="phase", phase=STAGING)
        if step := self._phases.feed(line.text):
            kind = "count" if step.total else "phase"
            yield BuildStep(
                kind=kind, package=package, python=python, phase=step.phase, done=step.done, total=step.total
            )
        elif (marker := MARKER.match(line.text)) and marker[1] == "swap":
            values = dict(word.split("=", 1) for word in marker[2].split() if "=" in word)
            with contextlib.suppress(KeyError, ValueError):  # not a line of the recipe's
                steps, core = int(values["steps"]), int(values["core"])
                self.swaps[values["to"]] = {"steps": steps, "core": core}
                counts = f"{counted(steps, 'step')} to run, {counted(core, 'core object')} among them"
                logger.info("Python %s -> %s: %s", values.get("from", ""), values["to"], counts)

    def seconds_of(self, package: PackageId, *, with_staging: bool) -> float:
        """Return the duration of a new package's build script so far, and of the staging if it counts as its part.

        A package that only takes files of the staging has no script: 0 seconds.
        """
        kind, name, build_string = self._script
        is_own = kind == "build" and name == package.name and build_string in ("", package.build_string)
        own = self._elapsed() if is_own else 0.0
        if not with_staging:
            return own
        is_staging = self._script == _STAGING_SCRIPT
        return own + (self._elapsed() if is_staging else self.staging_seconds)

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
        self._scripts: dict[tuple[str, str, str], deque[str]] = {}

    def add(self, script: tuple[str, str, str], text: str) -> None:
        """Keep a line of a script, named as in :attr:`ScriptLine.script`, or of the worker itself (``ENGINE``)."""
        self._scripts.setdefault(script, deque(maxlen=_REMEMBERED_LINES)).append(text[:_LONGEST_LINE])

    def culprit(self, outcome: Outcome, broken: Collection[str]) -> Culprit:
        """Return the script that failed; ``broken`` names the package files that failed their tests."""
        wanted, engine = "test" if outcome.kind == "test" else "build", list(self._scripts.get(ENGINE, ()))
        for kind, package, build_string in reversed(self._scripts):
            if kind == wanted and (kind != "test" or any(name.startswith(f"{package}-") for name in broken)):
                what = f"{kind} of {package} {build_string}".rstrip()
                what = what if package else f"staging of {self._staged}"
                lines = self._scripts[kind, package, build_string]
                return Culprit(package, build_string, what, [*lines, *engine])
        built = next((key for key in reversed(self._scripts) if key[0] == "build" and key[1]), None)
        if wanted == "test" and built:  # the check of a package's content prints nothing
            return Culprit(built[1], built[2], f"test of {built[1]} {built[2]}", engine)
        return Culprit("", "", "rattler-build", engine)
