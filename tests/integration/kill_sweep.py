"""Kills an operation at its n-th write-like call, repeats it, and compares with an undisturbed one, for many n.

The process has the library of kill_at_write.c preloaded.
"""

from __future__ import annotations

import mmap
import os
import random
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

_HEAD = struct.Struct("iii")  # struct state in kill_at_write.c: kill_at, count, only
_BELOW = 512
_NEVER = 2**31 - 1
_KILLED = -9


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation to kill. Each function runs in a process of its own and gets the folder, always at one path."""

    prepare: Callable[[Path], object]  #: makes the folder's content before the operation
    run: Callable[[Path], object]
    look: Callable[[Path], object]  #: the outcome, as JSON; in this process
    again: Callable[[Path], object] | None = None  #: the next command, if it is not the same
    below: str = ""  #: only calls below this folder count
    only_driver: bool = False  #: kill the process of the operation, not its children
    #: names of files that a kill may leave and a further run need not remove
    leftovers: Callable[[Path], list[str]] = lambda folder: []


@dataclass
class Report:
    """The outcome of a sweep."""

    calls: int = 0  #: write-like calls of the undisturbed operation
    tried: int = 0
    failures: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)


class _State:
    """The memory that is shared with the preloaded library."""

    def __init__(self) -> None:
        with open(os.environ["KILL_STATE"], "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    def arm(self, kill_at: int, below: Path, only: int = 0) -> None:
        self.disarm()
        self._memory[_HEAD.size : _HEAD.size + _BELOW] = os.fsencode(below).ljust(_BELOW, b"\0")
        self._memory[: _HEAD.size] = _HEAD.pack(kill_at, 0, only)

    def disarm(self) -> int:
        """Stop counting; return the number of calls."""
        _, count, _ = _HEAD.unpack(self._memory[: _HEAD.size])
        self._memory[: _HEAD.size] = _HEAD.pack(-1, 0, 0)
        return int(count)

    def last(self) -> str:
        text = bytes(self._memory[_HEAD.size + _BELOW :])
        return text.partition(b"\0")[0].decode(errors="replace")


class Sweep:
    """One operation, its folder and the undisturbed outcome."""

    def __init__(self, operation: Operation, folder: Path) -> None:
        self._operation = operation
        self._template = folder / "template"
        self._folder = folder / "here"
        self._output = folder / "output.txt"
        self._state = _State()
        self._state.disarm()

    def run(self, seconds: float) -> Report:
        """Try calls in a random order, all of them if ``seconds`` suffice."""
        report = Report()
        self._template.mkdir(parents=True)
        self._must(self._operation.prepare, self._template)
        self._restore()
        self._arm_and_run(_NEVER)
        report.calls = self._state.disarm()
        wanted = []
        if self._operation.again is None:  # with another next command, its outcome alone counts
            wanted.append(self._operation.look(self._folder))
        self._must(self._operation.again or self._operation.run, self._folder)
        wanted.append(self._operation.look(self._folder))
        order = list(range(1, report.calls + 1))
        random.Random(os.environ.get("MEGABUILD_TEST_SEED", "0")).shuffle(order)
        end = time.monotonic() + seconds
        for kill_at in order:
            if time.monotonic() > end:
                break
            report.tried += 1
            self._try(kill_at, wanted, report)
        return report

    def _try(self, kill_at: int, wanted: list[object], report: Report) -> None:
        self._restore()
        self._arm_and_run(kill_at)
        self._state.disarm()
        where = f"{kill_at} ({self._state.last().replace(str(self._folder), '')})"
        code = self._child(self._operation.again or self._operation.run, self._folder)
        if code:
            report.failures.append(f"{where}: exit {code}: {self._output.read_text(errors='replace')[-300:]}")
        elif (seen := self._operation.look(self._folder)) not in wanted:
            report.failures.append(f"{where}: {_difference(wanted[0], seen)}")
        report.leftovers += [f"{where}: {name}" for name in self._operation.leftovers(self._folder)]

    def _restore(self) -> None:
        script = 'rm -rf "$2" && cp -a "$1" "$2"'
        subprocess.run(["sh", "-c", script, "sh", self._template, self._folder], check=True)

    def _arm_and_run(self, kill_at: int) -> int:
        def armed(folder: Path) -> None:
            only = os.getpid() if self._operation.only_driver else 0
            self._state.arm(kill_at, folder / self._operation.below, only)
            self._operation.run(folder)

        code = self._child(armed, self._folder)
        if kill_at == _NEVER and code:
            raise RuntimeError(
                f"undisturbed: exit {code}: {self._output.read_text(errors='replace')[-3000:]}"
            )
        return code

    def _must(self, function: Callable[[Path], object], folder: Path) -> None:
        if code := self._child(function, folder):
            raise RuntimeError(f"exit {code}: {self._output.read_text(errors='replace')[-3000:]}")

    def _child(self, function: Callable[[Path], object], folder: Path) -> int:
        """Call a function in a process of its own; return its exit code, negative for a signal."""
        child = os.fork()
        if not child:
            code = 70
            try:
                file = os.open(self._output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                os.dup2(file, 1)
                os.dup2(file, 2)
                result = function(folder)
                code = result if isinstance(result, int) else 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _difference(wanted: object, seen: object) -> str:
    if isinstance(wanted, dict) and isinstance(seen, dict):
        names = [name for name in {**wanted, **seen} if wanted.get(name) != seen.get(name)]
        return "; ".join(f"{name}: {wanted.get(name)} became {seen.get(name)}" for name in names[:4])
    return f"{wanted} became {seen}"
