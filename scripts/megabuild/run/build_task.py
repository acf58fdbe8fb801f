"""A task that builds packages: prepares its folder, runs the engine, and checks what that has made.

What is common to libtorch with every Python's pytorch, and to each extension; :mod:`megabuild.run.pytorch` and
:mod:`megabuild.run.extension` say what differs.
"""

from __future__ import annotations

import contextlib
import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from groundwork import channel_folder, files
from groundwork.errors import BuildError, MegabuildError
from groundwork.jobs import Budget
from groundwork.progress import title
from groundwork.text import UNICODE, duration
from megabuild.configs.render import PlannedPackage
from megabuild.engine import archive, reproducible
from megabuild.engine.job import Job, Outcome
from megabuild.engine.logs import ScriptLine
from megabuild.engine.output_folder import FINISHED, prepare_output
from megabuild.plan.plan import Plan, PlanItem
from megabuild.plan.published import paths
from megabuild.run.build_output import BuildStep, Objects
from megabuild.run.logfile import LogFile
from megabuild.run.sandbox_paths import View
from megabuild.run.work import BROKEN, RunContext, TaskResult, Work
from megabuild.status.status import logger

_GRAIN_NS = 2_000_000_000


class BuildTask(Work):
    """Builds the packages of a recipe, and tests them one after the other."""

    def __init__(self, run: RunContext, state: Path, budget: Budget) -> None:
        super().__init__(run, state, budget)
        self._out = state / "out"
        self._seen: set[str] = set()
        self._dates: list[int] = []
        #: by file name: how long the build script took
        self.seconds: dict[str, float] = {}

    def _begin_attempt(self) -> None:
        super()._begin_attempt()
        self._objects = Objects(self._state)
        self._wanted: dict[str, PlannedPackage] = {}

    @property
    @abstractmethod
    def items(self) -> Sequence[PlanItem]:
        """What it makes, what is there already among it."""

    @abstractmethod
    def describe(self, jobs: int) -> tuple[View, Job]:
        """Lay out what the engine sees, and describe the task to the worker, but for its packages."""

    def dependencies(self) -> list[Path]:
        """Return published packages that others of it need, to be built or tested, and no channel has."""
        own = (item.package.file_name for item in self.items if item.exists)
        return paths(self._plan.options.packages, own)

    def prepare(self, seen: View, job: Job, log: LogFile) -> None:
        """Called before the engine starts."""
        return

    def built(self, package: Path) -> None:
        """Called when a package is in the engine's output folder."""
        return

    def check(self, package: Path) -> None:
        """Check a finished package; raise what is wrong with it."""
        return

    def run(self, jobs: int) -> TaskResult:
        """Build the packages that are missing; what an earlier run left, made from the same inputs, is only tested."""
        self._begin_attempt()
        self.pause()
        self._wanted = {item.package.file_name: item.package for item in self.items if not item.exists}
        if not self._wanted:
            return TaskResult(seconds={})
        left = prepare_output(
            self._state,
            inputs={item.package.file_name: item.fingerprint for item in self.items},
            published=self.dependencies(),
            platform=self._plan.options.config.platform,
        )
        for what in left.healed:
            self.say(f"removed {what}, left by a run that was killed")
        self._seen = {path.name for path in channel_folder.package_files(self._out)}
        for name in left.untested:
            self.built(self._out / name)
        seen, job = self.describe(jobs)
        job = replace(job, planned=list(self._wanted))
        with self.log() as log:
            self.prepare(seen, job, log)
            self._objects.begin()
            outcome = self._follow(seen, job, log)
            self.look()
            for sentence in self._objects.reused(self._parser.totals):
                self.say(sentence)
            return self.collect(outcome, jobs, log.path)

    def line(self, line: ScriptLine) -> None:
        self._objects.feed(line)

    def take(self, step: BuildStep) -> None:
        super().take(step)
        if step.kind == "test":  # tests are known by their packages' names
            tested = (package.id.label for package in self._wanted.values() if package.name == step.package)
            self._run.status.set_packages(tested, "testing")

    def look(self, *, at_once: bool = False) -> None:
        """Look for new packages where something has come into their folders."""
        if at_once or not self._changed():
            return
        for path in channel_folder.package_files(self._out):
            if path.name in self._seen:
                continue
            self._seen.add(path.name)
            if path.name in self._wanted:
                package = self._wanted[path.name].id
                seconds = self.seconds[path.name] = round(self._parser.seconds(), 1)
                # one that only takes its files out of a compile has no script of its own
                took = f" in {duration(seconds)}" if round(seconds) else ""
                logger.info("%s %s: built%s", UNICODE.done, package.label, took)
                self._run.status.set_packages([package.label], "built")
                self._run.status.time_left.reach(f"built {package.name}")
                states = self._run.status.record.packages
                if any(states.get(item.package.id.label) == "waiting" for item in self.items):
                    self.task.phase("environment of the next package", level=logging.DEBUG)
                else:
                    self.task.idle()
                self.built(path)

    def _changed(self) -> bool:
        """Say whether the folders of packages may hold others than at the last look."""
        dates: list[int] = []
        for subdir in (self._plan.options.config.platform, "noarch"):
            with contextlib.suppress(OSError):
                dates.append((self._out / subdir).stat().st_mtime_ns)
        # a date that is younger than the clock's grain may stay the same at another change
        settled = max(dates, default=0) < time.time_ns() - _GRAIN_NS
        changed, self._dates = dates != self._dates or not settled, dates
        return changed

    def collect(self, outcome: Outcome, jobs: int, log: Path) -> TaskResult:
        """Verify what was finished and passed its tests, whatever else failed."""
        finished = self._state / FINISHED
        files.remove(finished)
        archives = []
        for path in channel_folder.package_files(self._out):
            if path.name in self._wanted and path.name in outcome.passed:
                package = self._wanted[path.name]
                self.task.phase(title(package.name, package.python or "", "normalise"))
                archives.append(finish(self._plan, package, path, finished, self.halt))
        for made in archives:
            self.check(made.path)
        return TaskResult(archives=archives, seconds=self.seconds, error=self.error_of(outcome, jobs, log))

    def error_of(self, outcome: Outcome, jobs: int, log: Path) -> MegabuildError | None:
        """Return what is wrong with what the worker has done: it failed, or not everything is there."""
        if not outcome.ok:
            aside = self._out / BROKEN
            broken = [path.name for path in aside.glob("*.conda")]
            return self._failure(outcome, jobs, log, aside=aside, broken=broken)
        there = {path.name for path in channel_folder.package_files(self._out)}
        missing = sorted(self._wanted.keys() - there)
        if not missing:
            return None
        return BuildError(
            f"{len(missing)} of {len(self._wanted)} packages were not built: {', '.join(missing)}\nlog: {log}",
            "correct the cause and run again: finished packages are kept",
        )


def finish(
    plan: Plan, package: PlannedPackage, path: Path, folder: Path, halt: Callable[[], None]
) -> archive.Archive:
    """Write a package that has passed its tests as it will be published, below ``folder``, and verify it.

    Minutes for a large one, unless ``halt`` raises something. Raises IntegrityError: It is not what was planned.
    """
    target = folder / path.parent.name / path.name
    local = plan.environment.local
    reproducible.normalise(path, target, plan.date, level=plan.compression, local=local, halt=halt)
    return archive.verify(package, target)
