"""Builds several configs at the same time, each in a process of its own, and shows them in one table.

The processes end with this one, even if it is killed: between them is :mod:`groundwork.guard`. They have sessions of
their own, so that Ctrl-C reaches this process only, which passes it on.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from rich.console import Console

from command_line.config_end import ConfigEnd
from command_line.member_request import (
    MemberEnded,
    MemberRequest,
    MemberStarted,
    read_answer,
    with_request,
)
from command_line.progress_display import Screen
from command_line.run_command import Ending, Invocation, finish
from groundwork import guard
from groundwork.errors import BuildError, Interrupted
from groundwork.exhaustive import assert_never
from groundwork.job_pool import JobPool
from groundwork.machine import disk_free, measure, tree_memory
from groundwork.result import Result
from groundwork.text import counted, duration, plain, size, table
from megabuild.run.arrangement import Arrangement
from megabuild.status.reading import Standing, read_run_state
from megabuild.status.show import activity_line

_POLL_SECONDS = 0.1
#: Between two looks at the records of the configs whose groups have further ones.
_RECORD_SECONDS = 1.0
_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Member:
    """One of the configs."""

    request: MemberRequest  #: without its part of the pool
    state: Path  #: the config's folder
    is_fixed: bool  #: its scripts know no jobserver

    @property
    def name(self) -> str:
        """The config's name."""
        return self.request.config


@dataclass(kw_only=True)
class _Running:
    """A config's process: the guard, which runs the one that builds."""

    member: Member
    guard: subprocess.Popen[bytes]
    began: float = field(default_factory=time.monotonic)
    pid: int | None = None  #: of the process that builds; None until it can be interrupted
    end: MemberEnded | None = None
    is_ended_here: bool = False  #: the guard was told to end all
    only_tests: bool = False  #: its packages are made, and it has left its place to another config

    def interrupt(self, number: int) -> None:
        """Have the process end its run; end it at once if it has not begun one."""
        if self.pid is None:
            self.end_at_once()
            return
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def end_at_once(self) -> None:
        """Have the guard end all of the config's processes."""
        self.is_ended_here = True
        self.close()

    def close(self) -> None:
        """Close the guard's standard input, which ends all processes that are left."""
        assert self.guard.stdin is not None
        with suppress(BrokenPipeError):
            self.guard.stdin.close()


@dataclass(kw_only=True)
class _Stream:
    """What a config's process writes: answers, or lines for people."""

    running: _Running
    pipe: IO[bytes]
    has_answers: bool
    unfinished: bytes = b""  #: the start of the next line

    def lines(self, *, last: bool = False) -> list[bytes]:
        """Return the lines that were written since the last call; ``last``: also one without an end."""
        data = b""
        with suppress(BlockingIOError):
            while part := os.read(self.pipe.fileno(), _BYTES):
                data += part
        *lines, self.unfinished = (self.unfinished + data).split(b"\n")
        if last and self.unfinished:
            lines.append(self.unfinished)
        return lines


def build_side_by_side(
    members: Mapping[str, Member], arrangement: Arrangement, console: Console, invocation: Invocation
) -> dict[str, ConfigEnd]:
    """Build configs, and return the end of each; after an interrupt, those that were not started have none."""
    pool = JobPool(
        next(iter(members.values())).request.output,
        most=arrangement.jobs,
        places=arrangement.places,
        heavy_jobs=arrangement.heavy_jobs,
    )
    with pool, Screen(console) as screen:
        builds = _Builds(members, arrangement, pool, screen, invocation)
        screen.show_rows(builds.rows, builds.sentence)
        builds.run()
    return builds.ends()


class _Builds:
    """The configs that wait, those that are being built, and those that have ended."""

    def __init__(
        self,
        members: Mapping[str, Member],
        arrangement: Arrangement,
        pool: JobPool,
        screen: Screen,
        invocation: Invocation,
    ) -> None:
        self._members = members
        self._waiting = deque(deque(group) for group in arrangement.groups)
        self._places = arrangement.places
        self._starts_early = arrangement.starts_early
        self._next_look = 0.0  # at the records
        self._pool = pool
        self._screen = screen
        self._invocation = invocation
        self._running: dict[str, _Running] = {}
        self._streams: dict[str, list[_Stream]] = {}
        self._left: dict[str, deque[str]] = {}  # by running config: the rest of its group
        self._ends: dict[str, ConfigEnd] = {}
        self._selector = selectors.DefaultSelector()
        self._jobs_in_use = 0
        self._jobs = arrangement.jobs

    def run(self) -> None:
        """Build all configs; after an interrupt, wait for the running ones, which end in seconds."""
        try:
            self._start()
            while self._running:
                self._look()
        except KeyboardInterrupt as stop:
            word = str(stop)
            self._screen.tell(f"{word or 'Ctrl-C'}: ending {counted(len(self._running), 'config')}")
            self._stop_starting()
            self._listen(0.0)  # to processes that have just begun
            for running in list(self._running.values()):
                running.interrupt(getattr(signal, word or "SIGINT"))
            while self._running:
                self._look()
        finally:
            for running in self._running.values():
                running.end_at_once()
            for running in self._running.values():
                running.guard.wait()
            self._selector.close()

    def ends(self) -> dict[str, ConfigEnd]:
        """Return the end of each config."""
        return {name: self._ends.get(name, ConfigEnd(name=name)) for name in self._members}

    def _stop_starting(self) -> None:
        self._waiting.clear()
        self._left = {name: deque() for name in self._left}

    def _start(self) -> None:
        """Start configs of the next groups in free places."""
        while self._waiting and self._places_in_use() < self._places:
            self._start_next(self._waiting.popleft())

    def _places_in_use(self) -> int:
        return sum(1 for running in self._running.values() if not running.only_tests)

    def _free_places_of_tests(self) -> None:
        """Let a waiting config start while another one tests its packages, first the next one of its group.

        Not with a fixed share of the jobs, which the tests have until they end.
        """
        if not self._starts_early or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _RECORD_SECONDS
        for name, running in self._running.items():
            if running.only_tests or running.member.is_fixed:
                continue
            rest = self._left[name]
            following = [rest] if rest else list(self._waiting)[:1]
            if not following or self._members[following[0][0]].is_fixed:
                continue
            if _has_only_tests_left(running):
                running.only_tests = True
                if rest:
                    self._left[name] = deque()
                    self._waiting.appendleft(rest)

    def _start_next(self, group: deque[str]) -> None:
        """Start the first config of a group."""
        member = self._members[group.popleft()]
        part = self._pool.join(member.name, is_fixed=member.is_fixed)
        process = subprocess.Popen(
            [sys.executable, guard.__file__, *member_command(), member.name],
            env=with_request(os.environ, replace(member.request, pool=part)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        running = _Running(member=member, guard=process)
        self._running[member.name] = running
        self._left[member.name] = group
        assert process.stdout is not None
        assert process.stderr is not None
        self._streams[member.name] = [
            _Stream(running=running, pipe=process.stdout, has_answers=True),
            _Stream(running=running, pipe=process.stderr, has_answers=False),
        ]
        for stream in self._streams[member.name]:
            os.set_blocking(stream.pipe.fileno(), False)
            self._selector.register(stream.pipe, selectors.EVENT_READ, stream)
        self._screen.tell(f"{member.name}: started")

    def _look(self) -> None:
        """Wait a moment for lines; handle these, and the processes that have ended; share out the jobs."""
        self._listen(_POLL_SECONDS)
        for running in list(self._running.values()):
            if running.guard.poll() is not None:
                self._take_end(running)
        self._free_places_of_tests()
        self._start()
        self._pool.balance()
        self._jobs_in_use = self._pool.in_use

    def _listen(self, seconds: float) -> None:
        """Wait up to so many seconds for lines, and handle these."""
        for key, _ in self._selector.select(seconds):
            self._take_lines(key.data)

    def _take_lines(self, stream: _Stream, *, last: bool = False) -> None:
        """Handle answers, and show lines for people."""
        lines = stream.lines(last=last)
        for line in lines:
            if stream.has_answers:
                self._take_answer(stream.running, line)
            else:
                self._screen.tell(f"{stream.running.member.name}: {line.decode(errors='replace')}".rstrip())
        if not lines and not stream.unfinished and not last:
            self._selector.unregister(stream.pipe)  # closed: it would be readable all the time

    def _take_answer(self, running: _Running, line: bytes) -> None:
        answer = read_answer(line)
        match answer:
            case MemberStarted():
                running.pid = answer.pid
            case MemberEnded():
                running.end = answer
            case None:  # the process has no answer then, as one that was killed before it
                pass
            case never:
                assert_never(never)

    def _take_end(self, running: _Running) -> None:
        """Show the result of a process that has ended, and start the next config of its group."""
        name = running.member.name
        for stream in self._streams.pop(name):
            self._take_lines(stream, last=True)
            with suppress(KeyError):
                self._selector.unregister(stream.pipe)
            stream.pipe.close()
        running.close()
        del self._running[name]
        self._pool.leave(name)
        seconds = time.monotonic() - running.began
        end = self._end_of(running)
        log = Path(running.end.log) if running.end and running.end.log else None
        self._ends[name] = ConfigEnd(name=name, ending=end, seconds=seconds, log=log)
        self._screen.tell(f"{name}: {self._ends[name].result} after {duration(seconds)}")
        if running.end is not None and not self._invocation.json:
            self._screen.block([*running.end.lines, ""])
        group = self._left.pop(name)
        if self._ends[name].stops_others:
            self._stop_starting()
        elif group:
            self._waiting.appendleft(group)

    def _end_of(self, running: _Running) -> Ending:
        """Return the end that a process answered; if it was killed, report that."""
        if running.end is not None:
            return Ending(exit_code=running.end.exit_code, document=running.end.document)
        name = running.member.name

        def raise_error() -> Result:
            if running.is_ended_here:
                raise Interrupted(f"{name}: interrupted", "run the same command again")
            code = running.guard.returncode
            raise BuildError(
                f"{name}: its process ended with code {code}", "run the same command again to resume"
            )

        return finish(raise_error, replace(self._invocation))

    def rows(self) -> list[str]:
        """Return the table of configs, and the memory, disk and jobs of all together."""
        rows = [(name, *self._state_of(name)) for name in self._members]
        return [*table(("config", "time", "now"), rows), self._figures()]

    def sentence(self) -> str:
        """Return the present work of the running configs, and the figures, on one line."""
        parts = [f"{running.member.name}: {_work_of(running)}" for running in list(self._running.values())]
        return "; ".join([*parts, self._figures()])

    def _figures(self) -> str:
        output = next(iter(self._members.values())).state.parent
        figures = [
            f"{self._jobs_in_use} of {counted(self._jobs, 'job')} in use",
            f"memory {size(tree_memory(os.getpid()))} of {size(measure().memory)}",
            f"disk {size(disk_free(output))} free",
        ]
        return ", ".join(figures)

    def _state_of(self, name: str) -> tuple[str, str]:
        """Return the duration and the present work of a config."""
        end = self._ends.get(name)
        if end is not None:
            return duration(end.seconds), end.result
        running = self._running.get(name)
        if running is None:
            return "", "waiting"
        return duration(time.monotonic() - running.began), _work_of(running)


def member_command() -> list[str]:
    """Return the command of a config's process, which imports from the same folders as this one."""
    program = f"import sys; sys.path[:] = {sys.path!r}; from command_line.member import main; main()"
    return [sys.executable, "-I", "-c", program]


def _has_only_tests_left(running: _Running) -> bool:
    """Return whether a running config has made its packages, by its record."""
    state = read_run_state(running.member.state)
    record = state.record
    if record is None or record.pid != running.pid:  # of the run before
        return False
    return state.standing is Standing.RUNNING and record.only_tests_left


def _work_of(running: _Running) -> str:
    """Return the present work of a running config, from its record."""
    state = read_run_state(running.member.state)
    record = state.record
    if record is None or record.pid != running.pid or state.standing is not Standing.RUNNING:
        return "preparing"
    if record.activities:
        return activity_line(record.activities[0], time.time())
    return plain(record.status.value)
