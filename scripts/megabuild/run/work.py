"""Base class of a run's tasks, which run in their own threads, drive the worker and explain its failures."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from groundwork.errors import MegabuildError
from groundwork.jobs import Budget
from groundwork.machine import MemoryWatch
from groundwork.progress import title
from megabuild.engine import archive
from megabuild.engine.job import Job, Outcome
from megabuild.engine.logs import LogFollower
from megabuild.engine.supervisor import run_worker
from megabuild.isolation.base import Isolation
from megabuild.plan.plan import Plan
from megabuild.run.build_output import STAGING, BuildStep, LogTail, Parser
from megabuild.run.failure import Failure
from megabuild.run.failure_shell import remove_programs, write_failure_shell
from megabuild.run.logfile import LogFile
from megabuild.run.sandbox_paths import SandboxPaths
from megabuild.status.status import PHASE, Status, Task, logger, script_lines

#: Name of a task or package that must be available, or several names, of which one is enough.
Need: TypeAlias = "str | tuple[str, ...]"

#: Seconds before the retry after a network error.
NETWORK_PAUSE = 30.0
#: Seconds between two polls of logs while ninja compiles: polling is most of the driver's own CPU time.
_COMPILING_SECONDS = 0.25
#: Name of the folder of packages that failed their tests.
BROKEN = "broken"


class Stopped(Exception):
    """Raised in a task's thread when the run ends."""


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """A task's finished packages, and its error."""

    archives: Sequence[archive.Archive] = ()  #: packages that passed their tests and were verified
    seconds: Mapping[str, float]  #: by file name: duration of the build script
    error: MegabuildError | None = None  #: error of the other packages, if any


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Objects that all tasks of a run share."""

    plan: Plan  #: its state is locked
    isolation: Isolation
    status: Status
    log: LogFile  #: the run's own
    #: takes the name of a package that is now available to other tasks
    announce: Callable[[str], None]
    stop: threading.Event  #: set to end all tasks


class Work(ABC):
    """A task; the graph publishes its packages.

    ``state`` is the folder from which a later run of the task resumes. ``budget`` has the compile jobs that it shares
    with other tasks.
    """

    name: str
    needs: tuple[Need, ...] = ()  #: finished tasks and built packages that it waits for
    provides: tuple[str, ...] = ()  #: packages that it may announce while it runs
    cpu_seconds: int = 0  #: rough estimate
    alone: str = ""  #: tasks with the same word never run in parallel
    vital: bool = False  #: its failure fails the run
    brief: bool = False  #: short enough to finish after the run has failed
    labels: Sequence[str] = ()  #: labels of the packages that fail with it
    task: Task  #: its row in the status, while it runs

    def __init__(self, run: RunContext, state: Path, budget: Budget) -> None:
        self.budget, self._plan, self._run, self._state = budget, run.plan, run, state
        self._cancelled = threading.Event()
        self._retried, self._resumes = False, 0.0
        self._parser = Parser()

    def log(self) -> AbstractContextManager[LogFile]:
        """Return the log of the task's lines: by default the run's, which the context does not close."""
        return nullcontext(self._run.log)

    @abstractmethod
    def run(self, jobs: int) -> TaskResult:
        """Run the task with this many compile jobs; raise :class:`Stopped` if the run ends."""

    def go(self, jobs: int) -> TaskResult:
        """Run the task and show it in the status."""
        with self._run.status.task(self.name, level=PHASE if self.vital else logging.DEBUG) as self.task:
            self._parser, self._memory, self._phase = Parser(), MemoryWatch(), ""
            while time.monotonic() < self._resumes:
                self.halt()
                self._run.stop.wait(0.2)
            return self.run(jobs)

    def prepare_retry(self, error: MegabuildError) -> str:
        """Prepare one retry if it can help; return how, or an empty string.

        The network may be back soon, a program may have been killed by mistake, and two processes of rattler-build may
        have unpacked the same package at the same time.
        """
        kind = error.failure["kind"] if error.failure else ""
        if self._retried or kind not in ("network", "killed", "environment"):
            return ""
        pause = NETWORK_PAUSE if kind == "network" else 0.0
        self._retried, self._resumes = True, time.monotonic() + pause
        return f"retrying in {pause:.0f} s" if pause else "retrying"

    def look(self) -> None:
        """Called several times a second, and when a phase or a script begins."""
        return

    def take(self, step: BuildStep) -> None:
        """Show a step of the build scripts in the status."""
        if step.kind == "count":
            self.task.advance(step.done, step.total)
        elif step.kind == "phase":
            self._phase = step.phase
            label = title(step.package or self._plan.staged_name, step.python, step.phase)
            self.task.phase(label, point=f"{step.package} {step.phase}")
        elif step.kind == "package":
            self.task.phase(f"{step.label}: build script", level=logging.DEBUG)
        elif step.kind == "test":
            self.task.phase(f"testing {self.name}")
        else:
            logger.info("%s", step.sentence if self.vital else f"{self.name}: {step.sentence}")

    def cancel(self) -> None:
        """End the task soon; callable from any thread."""
        self._cancelled.set()

    def halt(self) -> None:
        """Raise :class:`Stopped` if the run ends or the task is cancelled."""
        if self._run.stop.is_set() or self._cancelled.is_set():
            raise Stopped(self.name)

    def follow(self, sandbox: SandboxPaths, job: Job, log: LogFile) -> Outcome:
        """Run the worker to its end; log everything that it and its scripts print."""
        self._tail, self._sandbox = LogTail(self._plan.staged_name), sandbox
        remove_programs(self._state)
        due, compiling = 0.0, False

        def take_engine_line(text: str) -> None:
            masked = log.write("engine", text)
            self._tail.add_engine(masked)
            script_lines.info("engine: %s", masked)

        def tick(*, last: bool = False) -> None:
            nonlocal due, compiling
            if last or time.monotonic() >= due:
                for line in follower.poll(last=last):
                    name = line.package.name
                    source = " ".join(word for word in (name or STAGING, name and line.python) if word)
                    source = f"test:{source}" if line.kind == "test" else source
                    masked = log.write(source, line.text)
                    self._tail.add(replace(line, text=masked))
                    script_lines.info("%s: %s", source, masked)
                    for step in self._parser.feed(line):
                        compiling = step.kind == "count" and step.done < step.total
                        self.take(step)
                        if step.kind != "count":
                            self.look()
                self.look()
                self._memory.tick()
                # outside ninja, poll all the time: a short script's log may disappear within a moment
                due = time.monotonic() + (_COMPILING_SECONDS if compiling else 0.0)
            if not last:
                self.halt()

        with LogFollower(self._state) as follower:
            outcome = run_worker(sandbox, job, on_line=take_engine_line, on_tick=tick)
            tick(last=True)
        return outcome

    def explain(
        self, outcome: Outcome, jobs: int, log: Path, *, aside: Path, broken: Collection[str], what: str = ""
    ) -> MegabuildError:
        """Return a failed worker's error; the package files ``broken``, now in ``aside``, failed their tests."""
        culprit = self._tail.culprit(outcome, broken)
        failure = Failure(
            outcome=outcome, lines=culprit.lines, what=what or culprit.what, phase=self._phase, jobs=jobs, log=log,
            state=self._state, short=self._memory.short(), aside=aside, inside=self._sandbox.state_inside,
            package=culprit.package,
        )  # fmt: skip
        if outcome.kind == "build":
            failure = replace(failure, shell=write_failure_shell(self._sandbox, culprit, failure.first))
        return failure.error()
