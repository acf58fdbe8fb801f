"""From the engine's scant words and the last lines of its logs to an error that says what to do."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Sequence
from pathlib import Path

from megabuild.engine.job import Outcome
from megabuild.engine.logs import ScriptLine
from megabuild.errors import (
    BuildError,
    KilledError,
    MegabuildError,
    OutOfMemoryError,
    OutOfSpaceError,
    PackageTestError,
    PreflightError,
    SwapRefused,
)
from megabuild.resources.machine import is_full
from megabuild.resources.shortage import lacked_memory, was_killed
from megabuild.wording import counted

_SPACE = re.compile(r"No space left on device|ENOSPC|Disk quota exceeded", re.IGNORECASE)
_ERROR = re.compile(r"\berror\b|FAILED:|Traceback|Error:|undefined reference|No such file", re.IGNORECASE)
_SWAP = re.compile(r"^::megabuild:: swap-?refused\b|swap refused|refus\w+ the (Python )?swap", re.IGNORECASE)
_NOISE = re.compile(r"^\s*$|^\++ ")
EXCERPT_LINES = 20
_REMEMBERED_LINES = 400


class Recent:
    """Remembers the last lines of every script, since after a failure the engine goes on to test what it has built."""

    def __init__(self) -> None:
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
                what = f"{kind} of {package} {build_string}".rstrip() if package else "staging of libtorch"
                return what, [*self._scripts[kind, package, build_string], *self._engine]
        built = next(
            (script for script in reversed(self._scripts) if script[0] == "build" and script[1]), None
        )
        if wanted == "test" and built:  # a look at a package's contents, which prints nothing
            return f"test of {built[1]} {built[2]}", list(self._engine)
        return "the engine", list(self._engine)


def excerpt(lines: Sequence[str]) -> str:
    """Return the lines that tell why: from the first error of the last screens, or simply the last ones."""
    telling = [line for line in lines if not _NOISE.match(line)]
    first = next((i for i, line in enumerate(telling) if _ERROR.search(line)), None)
    if first is not None and len(telling) - first > EXCERPT_LINES:
        return "\n".join(telling[first : first + EXCERPT_LINES])
    return "\n".join(telling[-EXCERPT_LINES:])


def of_resources(
    outcome: Outcome,
    *,
    lines: Sequence[str],
    what: str,
    jobs: int,
    log: Path | None,
    state: Path,
    short: bool,
) -> MegabuildError | None:
    """Return the error that a full disk, a full memory or somebody's SIGKILL is; None where it is none of them.

    As :func:`explain`, which asks it first; without a log, none is named.
    """
    text = "\n".join(lines)
    where, last = f"\nlog: {log}" if log else "", excerpt(lines)
    if _SPACE.search(text) or is_full(state):
        telling = next((f"\n{line}" for line in reversed(lines) if _SPACE.search(line)), "")
        return OutOfSpaceError(
            f"{what}: the disk is full, or has no room for further files ({state}){telling}{where}",
            "free some space, or put --output on another disk, and run again: finished objects and packages are kept",
        )
    killed = was_killed(text) or outcome.returncode in (-9, 137)
    shown = f"\n{last}{where}" if last else where
    if lacked_memory(text) or (killed and short):
        advice = (
            f"run again with fewer: CPU_COUNT={jobs // 2}" if jobs > 1 else "build where there is more memory"
        )
        return OutOfMemoryError(
            f"{what}: killed for want of memory with {counted(jobs, 'compile job')}{shown}",
            f"{advice}; finished objects and packages are kept",
        )
    if killed:
        return KilledError(
            f"{what}: killed by a signal (kill -9?); memory did not run out{shown}",
            "find out who sends it: a person, a batch system's limit, a service manager. Then run again: finished "
            "objects and packages are kept",
        )
    return None


def explain(
    outcome: Outcome,
    *,
    lines: Sequence[str],
    what: str,
    phase: str,
    jobs: int,
    log: Path,
    state: Path,
    short: bool,
) -> MegabuildError:
    """Return the error of a worker that did not end well.

    ``lines`` are the last ones of the scripts and the engine, ``what`` is what was being built or tested, ``phase`` the
    last one announced, ``jobs`` the compile jobs at once, ``state`` the config's state folder; memory was ``short`` if
    it ran out, or nearly so, while the worker was running.
    """
    text = "\n".join(lines)
    lacking = of_resources(outcome, lines=lines, what=what, jobs=jobs, log=log, state=state, short=short)
    if lacking is not None:
        return lacking
    shown = f"\n{excerpt(lines)}\nlog: {log}"
    if outcome.kind == "test":
        return PackageTestError(
            f"{what}: the package was built, but its own test failed ({outcome.message}){shown}",
            "correct the recipe and run again; a package that failed lies in the state folder under out/broken",
        )
    if outcome.kind == "solve":
        return PreflightError(
            f"{what}: the engine found no solution for an environment{shown}",
            "compare the recipe's requirements with what the provider has (--plan)",
        )
    if phase == "swap" and (_SWAP.search(text) or outcome.kind == "build"):
        return SwapRefused(
            f"{what}: the Python swap stopped{shown}",
            "correct the cause and run again: objects that fit are kept. Where nothing else helps, remove the config's "
            "tree folder, which compiles libtorch anew",
        )
    reason = outcome.message if outcome.kind in ("other", "killed") else "the build script failed"
    return BuildError(
        f"{what}: {reason}{shown}", "correct the cause and run again: finished objects and packages are kept"
    )
