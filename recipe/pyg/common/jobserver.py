"""Share a limit on jobs among all compiling processes: GNU make's jobserver, which ninja 1.13 supports.

A process that was started with a slot may run one job. Each further job needs a token from a named pipe, and puts it
back at its end. Standard library only.
"""

from __future__ import annotations

import os
import re
import select
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_TOKEN = b"+"
_AUTH = re.compile(r"--jobserver-auth=fifo:(?P<path>\S+)")


@dataclass(frozen=True, kw_only=True)
class Jobserver:
    """A named pipe with the tokens."""

    path: Path
    #: open for reading and writing, not blocking
    descriptor: int

    @classmethod
    def from_makeflags(cls, makeflags: str) -> Jobserver | None:
        """Join the jobserver that ``MAKEFLAGS`` names; return None if it names none, or the pipe does not exist."""
        match = _AUTH.search(makeflags)
        if match is None:
            return None
        path = Path(match["path"])
        if not path.is_fifo():
            return None
        return cls(path=path, descriptor=os.open(path, os.O_RDWR | os.O_NONBLOCK))

    @classmethod
    def create(cls, jobs: int) -> Jobserver:
        """Create a jobserver for ``jobs`` jobs at a time; the caller's own slot is the first of them."""
        path = Path(tempfile.mkdtemp(prefix="jobserver-")) / "tokens"
        os.mkfifo(path)
        # open for reading and writing, so that tokens stay in the pipe
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        os.write(descriptor, _TOKEN * (jobs - 1))
        return cls(path=path, descriptor=descriptor)

    @property
    def makeflags(self) -> str:
        """The value of ``MAKEFLAGS`` by which child processes find the jobserver."""
        return f" -j --jobserver-auth=fifo:{self.path}"

    def take(self) -> bytes:
        """Take a token; return no bytes if there is none."""
        try:
            return os.read(self.descriptor, 1)
        except BlockingIOError:
            return b""

    def give(self, token: bytes) -> None:
        os.write(self.descriptor, token)

    def remove(self) -> None:
        """Delete the pipe; only its creator may call this."""
        os.close(self.descriptor)
        self.path.unlink()
        self.path.parent.rmdir()


class _Slots:
    """The caller's own slot, and one more for each token."""

    def __init__(self, jobserver: Jobserver) -> None:
        self._jobserver = jobserver
        self._own_is_free = True

    def take(self) -> bytes | None:
        """Take a slot: return its token, no bytes for the caller's own slot, or None if there is none."""
        if self._own_is_free:
            self._own_is_free = False
            return b""
        return self._jobserver.take() or None

    def give(self, token: bytes) -> None:
        """Give back a slot that :meth:`take` returned."""
        if token:
            self._jobserver.give(token)
        else:
            self._own_is_free = True


@dataclass(frozen=True, kw_only=True)
class _Process:
    """A task's process."""

    process_id: int
    task: str
    token: bytes  #: of its slot


def run_all(tasks: Sequence[tuple[str, Callable[[], None]]], jobserver: Jobserver) -> list[str]:
    """Run tasks in forked processes: one in the caller's own slot, and one more for each token.

    By the jobserver's protocol a task's process may run one job; it starts only when it gets a slot. Any number of
    callers and tasks together therefore keep to the limit.

    `tasks`: Name and function of each, started in this order. A function fails by raising.
    Returns: The names of the failed tasks, in the order in which they ended.
    """
    waiting = list(tasks)
    failed: list[str] = []
    running: dict[int, _Process] = {}  # by the pipe that closes when the process ends
    slots = _Slots(jobserver)
    while waiting or running:
        while waiting and (token := slots.take()) is not None:
            name, function = waiting.pop(0)
            ended, process_id = _fork(function)
            running[ended] = _Process(process_id=process_id, task=name, token=token)
        watched = list(running)
        if waiting:
            watched.append(jobserver.descriptor)  # readable if it has a token, which the loop above takes
        readable, _, _ = select.select(watched, [], [])
        for descriptor in readable:
            process = running.pop(descriptor, None)
            if process is not None:
                os.close(descriptor)
                if not _succeeded(process):
                    failed.append(process.task)
                slots.give(process.token)
    return failed


def _succeeded(process: _Process) -> bool:
    """Wait for a process, and return whether its task has raised nothing."""
    _, status = os.waitpid(process.process_id, 0)
    return status == 0


def _fork(function: Callable[[], None]) -> tuple[int, int]:
    """Start a process; return a descriptor that becomes readable when it ends, and the process ID."""
    reading, writing = os.pipe()  # not inheritable: only the child itself keeps the writing end open
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process:
        os.close(writing)
        return reading, process
    status = 1
    try:
        function()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
