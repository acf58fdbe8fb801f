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
        if match is None or not Path(match["path"]).is_fifo():
            return None
        return cls(path=Path(match["path"]), descriptor=os.open(match["path"], os.O_RDWR | os.O_NONBLOCK))

    @classmethod
    def create(cls, jobs: int) -> Jobserver:
        """Create a jobserver for ``jobs`` jobs at a time; the caller's own slot is the first of them."""
        path = Path(tempfile.mkdtemp(prefix="jobserver-")) / "tokens"
        os.mkfifo(path)
        descriptor = os.open(
            path, os.O_RDWR | os.O_NONBLOCK
        )  # open for reading and writing, so that tokens stay in the pipe
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


def run_all(tasks: Sequence[tuple[str, Callable[[], None]]], jobserver: Jobserver) -> list[str]:
    """Run tasks in forked processes: one in the caller's own slot, and one more for each token.

    By the jobserver's protocol a task's process may run one job; it starts only when it gets a slot. Any number of
    callers and tasks together therefore keep to the limit.

    `tasks`: Name and function of each, started in this order. A function fails by raising.
    Returns: The names of the failed tasks, in the order in which they ended.
    """
    waiting, failed = list(tasks), list[str]()
    running: dict[
        int, tuple[int, str, bytes]
    ] = {}  # by the pipe that closes when the process ends: process, name, token
    own_slot_free = True
    while waiting or running:
        while waiting and (own_slot_free or (token := jobserver.take())):
            if own_slot_free:
                own_slot_free, token = False, b""
            name, function = waiting.pop(0)
            ended, process = _fork(function)
            running[ended] = (process, name, token)
        watched = [*running, *([jobserver.descriptor] if waiting else [])]
        for descriptor in select.select(watched, [], [])[0]:
            if descriptor not in running:
                continue  # the pipe has a token: the loop above tries to get it
            process, name, token = running.pop(descriptor)
            os.close(descriptor)
            if os.waitpid(process, 0)[1] != 0:
                failed.append(name)
            if token:
                jobserver.give(token)
            else:
                own_slot_free = True
    return failed


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
