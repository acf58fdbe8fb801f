"""Turns the engine's terse errors and the last lines of its logs into errors with a remedy."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from groundwork.errors import (
    BuildError,
    KilledError,
    MegabuildError,
    OutOfMemoryError,
    OutOfSpaceError,
    PackageTestError,
    PreflightError,
    SwapRefused,
)
from groundwork.resources.machine import is_full
from groundwork.resources.shortage import lacked_memory, was_killed
from groundwork.wording import counted
from megabuild.engine.job import Outcome
from megabuild.engine.logs import ScriptLine

_SPACE = re.compile(r"No space left on device|ENOSPC|Disk quota exceeded", re.IGNORECASE)
_ERROR = re.compile(r"\berror\b|FAILED:|Traceback|Error:|undefined reference|No such file", re.IGNORECASE)
_SWAP = re.compile(r"^::megabuild:: swap-?refused\b|swap refused|refus\w+ the (Python )?swap", re.IGNORECASE)
_NOISE = re.compile(r"^\s*$|^\++ ")
_PHASE = "::megabuild:: phase "
_KEPT = "finished objects and packages are kept"
EXCERPT_LINES = 20
_REMEMBERED_LINES = 400


class Recent:
    """Remembers the last lines of every script, since after a failure the engine goes on to test what it has built."""

    def __init__(self, staged: str = "libtorch") -> None:
        self._staged = staged
        self._scripts: dict[tuple[str, str, str], deque[str]] = {}
        self._engine: deque[str] = deque(maxlen=_REMEMBERED_LINES)

    def add(self, line: ScriptLine) -> None:
        """Remember a script's line."""
        self._scripts.setdefault(line.script, deque(maxlen=_REMEMBERED_LINES)).append(line.text)

    def add_engine(self, text: str) -> None:
        """Remember a line of the worker itself."""
        self._engine.append(text)

    def culprit(self, outcome: Outcome, broken: Collection[str]) -> tuple[str, list[str]]:
        """Return what an outcome is about, in words, and its last lines; ``broken`` files failed their tests."""
        wanted = "test" if outcome.kind == "test" else "build"
        for kind, package, build_string in reversed(self._scripts):
            if kind == wanted and (kind != "test" or any(name.startswith(f"{package}-") for name in broken)):
                what = (
                    f"{kind} of {package} {build_string}".rstrip()
                    if package
                    else f"staging of {self._staged}"
                )
                return what, [*self._scripts[kind, package, build_string], *self._engine]
        built = next(
            (script for script in reversed(self._scripts) if script[0] == "build" and script[1]), None
        )
        if wanted == "test" and built:  # a look at a package's contents, which prints nothing
            return f"test of {built[1]} {built[2]}", list(self._engine)
        return "the engine", list(self._engine)


def excerpt(lines: Sequence[str]) -> str:
    """Return the lines that show the cause: from the first error of the last phase, or simply the last ones."""
    began = max((number for number, line in enumerate(lines) if line.startswith(_PHASE)), default=-1)
    # a phase that failed before it said anything leaves what was said before
    telling = [line for line in lines[began + 1 :] or lines if not _NOISE.match(line)]
    first = next((i for i, line in enumerate(telling) if _ERROR.search(line)), None)
    if first is not None and len(telling) - first > EXCERPT_LINES:
        return "\n".join(telling[first : first + EXCERPT_LINES])
    return "\n".join(telling[-EXCERPT_LINES:])


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A worker that failed, with what is known of it."""

    outcome: Outcome
    lines: Sequence[str]  #: the last ones of the scripts and the engine
    what: str  #: what was being built or tested
    jobs: int  #: compile jobs at once
    state: Path  #: the task's state folder
    short: bool  #: memory ran out, or nearly so, while it was running
    phase: str = ""  #: the last one announced
    log: Path | None = None  #: the run's log file, where it has one
    aside: Path | None = None  #: where packages that failed their tests lie

    def of_resources(self) -> MegabuildError | None:
        """Return the error for a full disk, exhausted memory or a SIGKILL; None where it was none of them."""
        text, last = "\n".join(self.lines), excerpt(self.lines)
        where = f"\nlog: {self.log}" if self.log else ""
        if _SPACE.search(text) or is_full(self.state):
            telling = next((f"\n{line}" for line in reversed(self.lines) if _SPACE.search(line)), "")
            return OutOfSpaceError(
                f"{self.what}: the disk is full, or has no room for further files ({self.state}){telling}{where}",
                f"free some space, or put --output on another disk, and run again: {_KEPT}",
            )
        killed = was_killed(text) or self.outcome.returncode in (-9, 137)
        shown = f"\n{last}{where}" if last else where
        if lacked_memory(text) or (killed and self.short):
            fewer = f"run again with fewer: CPU_COUNT={self.jobs // 2}"
            return OutOfMemoryError(
                f"{self.what}: killed for want of memory with {counted(self.jobs, 'compile job')}{shown}",
                f"{fewer if self.jobs > 1 else 'build where there is more memory'}; {_KEPT}",
            )
        if killed:
            return KilledError(
                f"{self.what}: killed by a signal (kill -9?); memory did not run out{shown}",
                "find out who sends it: a person, a batch system's limit, a service manager. Then run again: "
                + _KEPT,
            )
        return None

    def error(self) -> MegabuildError:
        """Return the error, with its remedy."""
        if lacking := self.of_resources():
            return lacking
        outcome, shown = self.outcome, f"\n{excerpt(self.lines)}\nlog: {self.log}"
        if outcome.kind == "test":
            return PackageTestError(
                f"{self.what}: the package was built, but its own test failed ({outcome.message}){shown}",
                f"correct the recipe and run again; a package that failed lies in {self.aside}",
            )
        if outcome.kind == "solve":
            return PreflightError(
                f"{self.what}: the engine found no solution for an environment{shown}",
                "compare the recipe's requirements with what the provider has (--plan)",
            )
        if self.phase == "swap" and (_SWAP.search("\n".join(self.lines)) or outcome.kind == "build"):
            return SwapRefused(
                f"{self.what}: the Python swap stopped{shown}",
                "correct the cause and run again: objects that fit are kept. Where nothing else helps, remove the "
                "config's tree folder, which compiles libtorch anew",
            )
        reason = outcome.message if outcome.kind in ("other", "killed") else "the build script failed"
        return BuildError(f"{self.what}: {reason}{shown}", f"correct the cause and run again: {_KEPT}")
