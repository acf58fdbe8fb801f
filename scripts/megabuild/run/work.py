"""One task of a run, in a thread of its own: prepares its folder, runs the engine, explains failures, checks packages.

What is common to libtorch with every Python's pytorch, and to each extension; :mod:`megabuild.run.pytorch` and
:mod:`megabuild.run.extension` say what differs.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from groundwork import channel_folder, events, files
from groundwork.errors import BuildError, MegabuildError
from groundwork.resources.jobs import Budget
from groundwork.resources.shortage import Watch
from megabuild.configs.render import PlannedPackage
from megabuild.engine import archive, reproducible
from megabuild.engine.job import Job, Outcome
from megabuild.engine.logs import LogFollower, ScriptLine
from megabuild.engine.output_folder import FINISHED, prepare_output
from megabuild.engine.supervisor import run_worker
from megabuild.isolation.base import Isolation
from megabuild.plan.plan import Plan, PlanItem
from megabuild.plan.published import paths
from megabuild.run.build_output import STAGING, Objects, Parser
from megabuild.run.failure import Failure, Recent
from megabuild.run.logfile import LogFile
from megabuild.run.sandbox_paths import View


class Stopped(Exception):
    """Raised in a task's thread when the run ends."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """What a task has made."""

    archives: Sequence[archive.Archive] = ()  #: packages that passed their tests and were verified
    seconds: Mapping[str, float]  #: by file name: how long the build script took
    error: MegabuildError | None = None  #: what went wrong with the rest


@dataclass(frozen=True, kw_only=True)
class Run:
    """What all tasks of a run share."""

    plan: Plan  #: the run; its state is locked
    isolation: Isolation  #: where, checked
    tell: Callable[[events.Event], None]  #: takes events, from any thread
    stop: threading.Event  #: set when everything is to end


class Work(ABC):
    """A task. Its packages are published by whoever started it, not here.

    ``state`` is the folder of everything that a later run of it continues from; it shares the ``budget`` of compile
    jobs with others.
    """

    name: str
    needs: tuple[str, ...] = ()  #: names of tasks whose packages must be published first
    cpu_seconds: int = 0  #: roughly what it takes
    alone: str = ""  #: no two tasks with the same word run at the same time
    vital: bool = False  #: all else rests on it: its failure ends the run

    def __init__(self, run: Run, state: Path, budget: Budget) -> None:
        self.budget = budget
        #: packages that failed their tests
        self.broken: frozenset[str] = frozenset()
        self._plan = run.plan
        self._run = run
        self._state = state
        self._out = state / "out"
        self._parser = self._new_parser()
        self._objects = Objects(state)
        self._recent = Recent(self._plan.staged_name)
        self._phase = ""
        self._seen: set[str] = set()
        self._seconds: dict[str, float] = {}
        self._memory = Watch()

    @property
    @abstractmethod
    def items(self) -> Sequence[PlanItem]:
        """What it makes, what is there already among it."""

    @abstractmethod
    def log(self) -> AbstractContextManager[LogFile]:
        """Open the log that takes every line of it."""

    @abstractmethod
    def describe(self, jobs: int) -> tuple[View, Job]:
        """Lay out what the engine sees, and describe the task to the worker, but for its packages."""

    @abstractmethod
    def retry_event(self, error: MegabuildError, jobs: int) -> events.Event:
        """Return the event for another attempt, with fewer jobs."""

    def dependencies(self) -> list[Path]:
        """Return published packages that others of it need, to be built or tested, and no channel has."""
        own = (item.package.file_name for item in self.items if item.exists)
        return paths(self._plan.options.packages, own)

    def prepare(self, seen: View, job: Job, log: LogFile) -> None:
        """Called before the engine starts."""
        return

    def check(self, package: Path) -> None:
        """Check a finished package; raise what is wrong with it."""
        return

    def mend(self, error: MegabuildError) -> str:
        """Repair the cause of an error, where that is cheap; return what was done, or nothing."""
        return ""

    def occasion(self, event: events.Event | None) -> None:
        """Called about twenty times a second, and at every event."""
        return

    # ------------------------------------------------------------------------------------------ from here on: how

    def run(self, jobs: int) -> Made:
        """Build the packages that are missing; what an earlier run left, made from the same inputs, is only tested.

        Raises MegabuildError: It failed before there was anything, or a package is not what it should be.
        Raises Stopped: The run ends.
        """
        self._parser, self._objects = self._new_parser(), Objects(self._state)  # nothing of a former attempt
        self._memory = Watch()
        wanted = {item.package.file_name: item.package for item in self.items if not item.exists}
        if not wanted:
            return Made(seconds={})
        given = self.dependencies()
        left = prepare_output(
            self._state,
            inputs={item.package.file_name: item.fingerprint for item in self.items},
            published=given,
            platform=self._plan.options.config.platform,
        )
        for what in left.healed:
            self.tell(events.Healed(what=what))
        self._seen = {path.name for path in channel_folder.package_files(self._out)}
        seen, job = self.describe(jobs)
        job = replace(
            job,
            planned=list(wanted),
            leftovers=left.untested,
            published=[path.name for path in given],
        )
        with self.log() as log:
            self.prepare(seen, job, log)
            outcome = self._follow(seen, job, log, wanted)
            self.occasion(None)
            for event in self._objects.reused(self._parser.totals):
                self.tell(event)
            return self._collect(outcome, jobs, log.path, wanted)

    def _new_parser(self) -> Parser:
        staged = self._plan.staged_name
        return Parser(staging=STAGING if staged == "libtorch" else staged)

    def tell(self, event: events.Event) -> None:
        """Pass an event on."""
        self._run.tell(event)

    def halt(self) -> None:
        """Raise :class:`Stopped` where the run ends."""
        if self._run.stop.is_set():
            raise Stopped(self.name)

    def write(self, log: LogFile, line: ScriptLine) -> None:
        """Log a line of a script, and keep it for error messages."""
        name = line.package.name
        source = " ".join(word for word in (name or STAGING, name and line.python) if word)
        source = f"test:{source}" if line.kind == "test" else source
        text = log.write(source, line.text)
        self._recent.add(replace(line, text=text))
        self.tell(events.LogLine(source=source, text=text))

    def _follow(self, seen: View, job: Job, log: LogFile, wanted: Mapping[str, PlannedPackage]) -> Outcome:
        self._objects.begin()
        self._recent = Recent(self._plan.staged_name)  # what was checked before explains nothing from here on

        def engine(text: str) -> None:
            masked = log.write("engine", text)
            self._recent.add_engine(masked)
            self.tell(events.LogLine(source="engine", text=masked))

        def tick(*, last: bool = False) -> None:
            for line in follower.poll(last=last):
                self.write(log, line)
                self._objects.feed(line)
                for event in self._parser.feed(line):
                    if isinstance(event, events.PhaseStarted):
                        self._phase = event.phase
                    self.occasion(event)
                    self.tell(event)
            self.occasion(None)
            self._memory.tick()
            self._new_packages(wanted)
            if not last:
                self.halt()

        with LogFollower(self._state) as follower:
            outcome = run_worker(seen, job, on_line=engine, on_tick=tick)
            tick(last=True)
        return outcome

    def _new_packages(self, wanted: Mapping[str, PlannedPackage]) -> None:
        for path in channel_folder.package_files(self._out):
            if path.name in self._seen:
                continue
            self._seen.add(path.name)
            if path.name in wanted:
                package = wanted[path.name].id
                seconds = self._seconds[path.name] = round(self._parser.seconds(), 1)
                self.tell(events.PackageBuilt(package=package, seconds=seconds))

    def _collect(self, outcome: Outcome, jobs: int, log: Path, wanted: Mapping[str, PlannedPackage]) -> Made:
        """Verify what was finished and passed its tests, whatever else failed."""
        self.broken = frozenset(path.name for path in (self._out / "broken").glob("*.conda"))
        there = [path for path in channel_folder.package_files(self._out) if path.name in wanted]
        finished = self._state / FINISHED
        files.remove(finished)
        passed = []
        for path in there:
            if path.name not in outcome.passed:
                continue
            package = wanted[path.name]
            self.tell(
                events.PhaseStarted(phase="normalise", package=package.name, python=package.python or "")
            )
            passed.append(finished / path.parent.name / path.name)
            # minutes for a large one
            reproducible.normalise(path, passed[-1], self._plan.date, local=self._plan.environment.local)
        archives = [archive.verify(wanted[path.name], path) for path in passed]
        for path in passed:
            self.check(path)
        error: MegabuildError | None = None
        missing = sorted(wanted.keys() - {path.name for path in there})
        if not outcome.ok:
            what, lines = self._recent.culprit(outcome, self.broken)
            error = Failure(
                outcome=outcome, lines=lines, what=what, phase=self._phase, jobs=jobs, log=log, state=self._state,
                short=self._memory.short(),
            ).error()  # fmt: skip
        elif missing:
            error = BuildError(
                f"{len(missing)} of {len(wanted)} packages were not built: {', '.join(missing)}\nlog: {log}",
                "correct the cause and run again: finished packages are kept",
            )
        return Made(archives=archives, seconds=self._seconds, error=error)
