"""One task of a run, in a thread of its own: it has the engine's worker do something, and explains failures.

What it does say :mod:`megabuild.run.build_task` and, for tests of packages, :mod:`megabuild.run.package_test`.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from groundwork.errors import MegabuildError
from groundwork.jobs import Budget
from groundwork.machine import MemoryWatch
from groundwork.progress import title
from megabuild.engine import archive
from megabuild.engine.job import Job, Outcome
from megabuild.engine.logs import LogFollower, ScriptLine
from megabuild.engine.supervisor import run_worker
from megabuild.isolation.base import Isolation
from megabuild.plan.plan import Plan
from megabuild.run.build_output import STAGING, BuildStep, Parser
from megabuild.run.failure import Failure
from megabuild.run.failure_shell import forget, write_failure_shell
from megabuild.run.log_tail import LogTail
from megabuild.run.logfile import LogFile
from megabuild.run.sandbox_paths import View
from megabuild.status.status import PHASE, Status, Task, logger, script_lines

#: Something that must be there: its name, or several of which one is enough.
Need: TypeAlias = "str | tuple[str, ...]"


#: Seconds between an attempt that the network has ended and the next one: there are as many more as these.
NETWORK_PAUSES = (20.0, 60.0)
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

    plan: Plan  #: the run; its state is locked
    isolation: Isolation  #: where, checked
    status: Status
    there: Callable[[str], None]  #: takes the name of something that is there now, and that tasks may need
    stop: threading.Event  #: set when everything is to end


class Work(ABC):
    """A task. What it makes is published by whoever started it, not here.

    ``state`` is the folder of everything that a later run of it continues from; it shares the ``budget`` of compile
    jobs with others.
    """

    name: str
    needs: tuple[
        Need, ...
    ] = ()  #: what must be there before it starts: tasks that are done, packages that are built
    publish_after: tuple[Need, ...] = ()  #: tasks whose packages must be published before its own are
    provides: tuple[str, ...] = ()  #: what it may say to be there while it runs
    cpu_seconds: int = 0  #: roughly what it takes
    alone: str = ""  #: no two tasks with the same word run at the same time
    vital: bool = False  #: its failure is that of the run
    brief: bool = False  #: worth bringing to its end in a run that has failed
    labels: Sequence[str] = ()  #: of the packages that fail with it
    task: Task  #: its row in the status, while it runs

    def __init__(self, run: RunContext, state: Path, budget: Budget) -> None:
        self.budget = budget
        self._plan = run.plan
        self._run = run
        self._state = state
        self._cancelled = threading.Event()
        self._tried_again = False
        self._pauses = list(NETWORK_PAUSES)
        self._pause = 0.0
        self._begin_attempt()

    def _begin_attempt(self) -> None:
        """Forget what a former attempt has said."""
        self._parser = Parser()
        self._tail = LogTail(self._plan.staged_name)
        self._memory = MemoryWatch()
        self._phase = ""

    @abstractmethod
    def log(self) -> AbstractContextManager[LogFile]:
        """Open the log that takes every line of it."""

    @abstractmethod
    def run(self, jobs: int) -> TaskResult:
        """Do it with so many compile jobs.

        Raises MegabuildError: It failed before there was anything, or a package is not what it should be.
        Raises Stopped: The run ends.
        """

    def go(self, jobs: int) -> TaskResult:
        """Run it, as a row of the status."""
        with self._run.status.task(self.name, level=PHASE if self.vital else logging.DEBUG) as self.task:
            return self.run(jobs)

    @abstractmethod
    def report_retry(self, error: MegabuildError, jobs: int) -> None:
        """Report another attempt, with fewer jobs."""

    def mend(self, error: MegabuildError) -> str:
        """Repair the cause of an error, where that is cheap; return what was done, or nothing.

        A network that failed may be back soon: a live feedstock has lost eleven hours to a single answer. A program
        that somebody killed gets a second chance; who kills again means it. So does an environment that was solved and
        could not be made: two engines may have met over a package that both were unpacking. And so does what found no
        room on the disk, once the run that is held for it goes on.
        """
        kind = error.failure["kind"] if error.failure else ""
        if kind in ("killed", "environment"):
            again, self._tried_again = not self._tried_again, True
            return "once more" if again else ""
        if kind != "network" or not self._pauses:
            return ""
        self._pause = self._pauses.pop(0)
        return f"tried once more in {self._pause:.0f} s"

    def pause(self) -> None:
        """Wait as long as was said when it was put back, unless the run ends."""
        until, self._pause = time.monotonic() + self._pause, 0.0
        while (left := until - time.monotonic()) > 0:
            self.halt()
            self._run.stop.wait(min(left, 0.2))

    def look(self, *, at_once: bool = False) -> None:
        """Called some times a second, and at once where a phase or a script begins."""
        return

    def line(self, line: ScriptLine) -> None:
        """Called for every line of a script."""
        return

    def take(self, step: BuildStep) -> None:
        """Take what the build scripts have announced."""
        what = title(step.package or self._plan.staged_name, step.python, step.phase)
        if step.kind == "count":
            self.task.advance(step.done, step.total)
        elif step.kind == "phase":
            self._phase = step.phase
            self.task.phase(what, point=f"{step.package} {step.phase}")
        elif step.kind == "package":
            logger.debug("%s: build script began", step.label)
            self.task.phase(f"{step.label}: build script", level=logging.DEBUG)
        elif step.kind == "test":
            self.task.phase(f"testing {self.name}")
        else:
            self.say(step.sentence)

    def cancel(self) -> None:
        """End it soon; from any thread."""
        self._cancelled.set()

    def say(self, sentence: str) -> None:
        """Log a sentence, labelled with the task where several run at the same time."""
        logger.info("%s", sentence if self.vital else f"{self.name}: {sentence}")

    def halt(self) -> None:
        """Raise :class:`Stopped` where the run ends."""
        if self._run.stop.is_set() or self._cancelled.is_set():
            raise Stopped(self.name)

    def write(self, log: LogFile, line: ScriptLine) -> None:
        """Log a line of a script, and keep it for error messages."""
        name = line.package.name
        source = " ".join(word for word in (name or STAGING, name and line.python) if word)
        source = f"test:{source}" if line.kind == "test" else source
        text = log.write(source, line.text)
        self._tail.add(ScriptLine(kind=line.kind, package=line.package, python=line.python, text=text))
        script_lines.info("%s: %s", source, text)

    def _follow(self, seen: View, job: Job, log: LogFile) -> Outcome:
        """Run the worker to its end, with everything that it and its scripts print in the log."""
        self._tail = LogTail(self._plan.staged_name)  # what was checked before explains nothing from here on
        self._view = seen
        forget(self._state)

        def engine(text: str) -> None:
            masked = log.write("engine", text)
            self._tail.add_engine(masked)
            script_lines.info("engine: %s", masked)

        due, compiling = 0.0, False

        def tick(*, last: bool = False) -> None:
            nonlocal due, compiling
            if last or time.monotonic() >= due:
                for line in follower.poll(last=last):
                    self.write(log, line)
                    self.line(line)
                    for step in self._parser.feed(line):
                        compiling = step.kind == "count" and step.done < step.total
                        self.take(step)
                        self.look(at_once=step.kind != "count")
                self.look()
                self._memory.tick()
                # a short script's log may come and go between two looks, but none comes while ninja is at work
                due = time.monotonic() + (_COMPILING_SECONDS if compiling else 0.0)
            if not last:
                self.halt()

        with LogFollower(self._state) as follower:
            outcome = run_worker(seen, job, on_line=engine, on_tick=tick)
            tick(last=True)
        return outcome

    def _failure(
        self, outcome: Outcome, jobs: int, log: Path, *, aside: Path, broken: Collection[str], what: str = ""
    ) -> MegabuildError:
        """Return the error of a worker that failed; ``broken`` package files, now in ``aside``, failed their tests."""
        culprit = self._tail.culprit(outcome, broken)
        failure = Failure(
            outcome=outcome, lines=culprit.lines, what=what or culprit.what, phase=self._phase, jobs=jobs, log=log,
            state=self._state, short=self._memory.short(), aside=aside, inside=self._view.state_inside,
            package=culprit.package,
        )  # fmt: skip
        shell = write_failure_shell(self._view, culprit, failure.first) if outcome.kind == "build" else None
        return replace(failure, shell=shell).error()
