"""One task of a run, in a thread of its own: it has the engine's worker do something, and explains failures."""

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
from megabuild.run.sandbox_paths import View
from megabuild.status.status import PHASE, Status, Task, logger, script_lines

#: Something that must be available: its name, or several of which one is enough.
Need: TypeAlias = "str | tuple[str, ...]"

#: Seconds between an attempt that the network has ended and the next one.
NETWORK_PAUSE = 30.0
#: Between two looks at a script's log while ninja is at work: what a driver takes in a build of hours is mostly looks.
_COMPILING_SECONDS = 0.25
#: Name of the folder of packages that failed their tests.
BROKEN = "broken"


class Stopped(Exception):
    """Raised in a task's thread when the run ends."""


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """What a task has made."""

    archives: Sequence[archive.Archive] = ()  #: packages that passed their tests and were verified
    seconds: Mapping[str, float]  #: by file name: how long the build script took
    error: MegabuildError | None = None  #: what went wrong with the rest


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """What all tasks of a run share."""

    plan: Plan  #: its state is locked
    isolation: Isolation
    status: Status
    log: LogFile  #: the run's own
    #: takes the name of something that tasks may need and that is available now
    announce: Callable[[str], None]
    stop: threading.Event  #: set when everything is to end


class Work(ABC):
    """A task, which publishes nothing itself.

    ``state`` is the folder of everything that a later run of it continues from; it shares the ``budget`` of compile
    jobs with others.
    """

    name: str
    needs: tuple[Need, ...] = ()  #: what it starts after: tasks that are done, packages that are built
    provides: tuple[str, ...] = ()  #: what it may announce while it runs
    cpu_seconds: int = 0  #: roughly what it takes
    alone: str = ""  #: no two tasks with the same word run at the same time
    vital: bool = False  #: its failure is that of the run
    brief: bool = False  #: worth bringing to its end in a run that has failed
    labels: Sequence[str] = ()  #: of the packages that fail with it
    task: Task  #: its row in the status, while it runs

    def __init__(self, run: RunContext, state: Path, budget: Budget) -> None:
        self.budget, self._plan, self._run, self._state = budget, run.plan, run, state
        self._cancelled = threading.Event()
        self._retried, self._resumes = False, 0.0
        self._parser = Parser()

    def log(self) -> AbstractContextManager[LogFile]:
        """Open the log that takes every line of it: the run's, which stays open."""
        return nullcontext(self._run.log)

    @abstractmethod
    def run(self, jobs: int) -> TaskResult:
        """Do it with so many compile jobs; raises :class:`Stopped` where the run ends."""

    def go(self, jobs: int) -> TaskResult:
        """Run it, as a row of the status."""
        with self._run.status.task(self.name, level=PHASE if self.vital else logging.DEBUG) as self.task:
            self._parser, self._memory, self._phase = Parser(), MemoryWatch(), ""
            while time.monotonic() < self._resumes:
                self.halt()
                self._run.stop.wait(0.2)
            return self.run(jobs)

    def mend(self, error: MegabuildError) -> str:
        """Have a task tried once more where another attempt can help; return how, or nothing.

        A network that failed may be back soon, a program may have been killed by mistake, and two engines may have met
        over a package that both were unpacking.
        """
        kind = error.failure["kind"] if error.failure else ""
        if self._retried or kind not in ("network", "killed", "environment"):
            return ""
        pause = NETWORK_PAUSE if kind == "network" else 0.0
        self._retried, self._resumes = True, time.monotonic() + pause
        return f"tried once more in {pause:.0f} s" if pause else "once more"

    def look(self) -> None:
        """Called some times a second, and where a phase or a script begins."""
        return

    def take(self, step: BuildStep) -> None:
        """Take what the build scripts have announced."""
        if step.kind == "count":
            self.task.advance(step.done, step.total)
        elif step.kind == "phase":
            self._phase = step.phase
            what = title(step.package or self._plan.staged_name, step.python, step.phase)
            self.task.phase(what, point=f"{step.package} {step.phase}")
        elif step.kind == "package":
            self.task.phase(f"{step.label}: build script", level=logging.DEBUG)
        elif step.kind == "test":
            self.task.phase(f"testing {self.name}")
        else:
            logger.info("%s", step.sentence if self.vital else f"{self.name}: {step.sentence}")

    def cancel(self) -> None:
        """End it soon; from any thread."""
        self._cancelled.set()

    def halt(self) -> None:
        """Raise :class:`Stopped` where the run ends."""
        if self._run.stop.is_set() or self._cancelled.is_set():
            raise Stopped(self.name)

    def follow(self, seen: View, job: Job, log: LogFile) -> Outcome:
        """Run the worker to its end, with everything that it and its scripts print in the log."""
        self._tail, self._view = LogTail(self._plan.staged_name), seen
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
                # a short script's log may come and go between two looks, but none comes while ninja is at work
                due = time.monotonic() + (_COMPILING_SECONDS if compiling else 0.0)
            if not last:
                self.halt()

        with LogFollower(self._state) as follower:
            outcome = run_worker(seen, job, on_line=take_engine_line, on_tick=tick)
            tick(last=True)
        return outcome

    def explain(
        self, outcome: Outcome, jobs: int, log: Path, *, aside: Path, broken: Collection[str], what: str = ""
    ) -> MegabuildError:
        """Return the error of a worker that failed; ``broken`` package files, now in ``aside``, failed their tests."""
        culprit = self._tail.culprit(outcome, broken)
        failure = Failure(
            outcome=outcome, lines=culprit.lines, what=what or culprit.what, phase=self._phase, jobs=jobs, log=log,
            state=self._state, short=self._memory.short(), aside=aside, inside=self._view.state_inside,
            package=culprit.package,
        )  # fmt: skip
        if outcome.kind == "build":
            failure = replace(failure, shell=write_failure_shell(self._view, culprit, failure.first))
        return failure.error()
