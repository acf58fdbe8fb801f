"""A task that builds packages: prepares its folder, runs rattler-build, and verifies the packages."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from groundwork import channel_folder, files
from groundwork.errors import BuildError, MegabuildError
from groundwork.jobs import Budget
from groundwork.progress import title
from groundwork.text import Sign, duration
from megabuild.configs.render import PlannedPackage
from megabuild.engine import archive, reproducible
from megabuild.engine.job import Job, Outcome
from megabuild.engine.output_folder import FINISHED, prepare_output
from megabuild.plan.plan import Plan, PlanItem
from megabuild.plan.published import paths
from megabuild.run.build_output import BuildStep
from megabuild.run.logfile import LogFile
from megabuild.run.sandbox_paths import SandboxPaths
from megabuild.run.work import BROKEN, RunContext, TaskResult, Work
from megabuild.status.status import logger

#: zstd's level for packages. libtorch 2.13.0 for the CPU: 93 MB in 11 CPU seconds; at level 17, 87 MB in 162.
_COMPRESSION = 10


class BuildTask(Work):
    """Builds the packages of a recipe and tests them one after the other."""

    def __init__(self, run: RunContext, state: Path, budget: Budget) -> None:
        super().__init__(run, state, budget)
        self._out = state / "out"
        self._seen: set[str] = set()
        self._missing: dict[str, PlannedPackage] = {}  # by file name
        self.seconds: dict[str, float] = {}  #: by file name: duration of the build script

    @property
    @abstractmethod
    def items(self) -> Sequence[PlanItem]:
        """The task's packages, including published ones."""

    @abstractmethod
    def describe(self, jobs: int) -> tuple[SandboxPaths, Job]:
        """Return the paths that rattler-build sees, and the worker's job without its packages."""

    def dependencies(self) -> list[Path]:
        """Return the published packages that rattler-build needs to build or test the others."""
        own = (item.package.file_name for item in self.items if item.exists)
        return paths(self._plan.options.packages, own)

    def prepare(self, sandbox: SandboxPaths, job: Job, log: LogFile) -> None:
        """Called before rattler-build starts."""
        return

    def keep_built(self, package: Path) -> None:
        """Called when a package is in rattler-build's output folder."""
        return

    def check(self, package: Path) -> None:
        """Check a finished package; raise an error if it is faulty."""
        return

    def run(self, jobs: int) -> TaskResult:
        """Build the missing packages; only test those that an earlier run built from the same inputs."""
        self._missing = {item.package.file_name: item.package for item in self.items if not item.exists}
        if not self._missing:
            return TaskResult(seconds={})
        untested = prepare_output(
            self._state,
            inputs={item.package.file_name: item.fingerprint for item in self.items},
            published=self.dependencies(),
            platform=self._plan.options.config.platform,
        )
        self._seen = {path.name for path in channel_folder.package_files(self._out)}
        for name in untested:
            self.keep_built(self._out / name)
        sandbox, job = self.describe(jobs)
        with self.log() as log:
            self.prepare(sandbox, job, log)
            outcome = self.follow(sandbox, replace(job, planned=list(self._missing)), log)
            return self.collect(outcome, jobs, log.path)

    def take(self, step: BuildStep) -> None:
        super().take(step)
        if step.kind == "test":  # a test names its package without the build string
            tested = [package.id.label for package in self._missing.values() if package.name == step.package]
            self._run.status.set_packages(tested, "testing")

    def look(self) -> None:
        """Report new packages in the output folder."""
        for path in channel_folder.package_files(self._out):
            if path.name in self._seen:
                continue
            self._seen.add(path.name)
            if path.name in self._missing:
                package, status = self._missing[path.name].id, self._run.status
                seconds = self.seconds[path.name] = round(self._parser.seconds(), 1)
                # a package that only picks files of a compile has no script
                took = f" in {duration(seconds)}" if round(seconds) else ""
                logger.info("%s %s: built%s", Sign.done, package.label, took)
                status.set_packages([package.label], "built")
                status.time_left.reach(f"built {package.name}")
                if any(status.record.packages.get(item.package.id.label) == "waiting" for item in self.items):
                    self.task.phase("preparing the next package's environment", level=logging.DEBUG)
                else:
                    self.task.idle()
                self.keep_built(path)

    def collect(self, outcome: Outcome, jobs: int, log: Path) -> TaskResult:
        """Verify the packages that passed their tests, even if others failed."""
        finished = self._state / FINISHED
        files.remove(finished)
        archives = []
        for path in channel_folder.package_files(self._out):
            if path.name in self._missing and path.name in outcome.passed:
                package = self._missing[path.name]
                self.task.phase(title(package.name, package.python or "", "normalise"))
                archives.append(finish(self._plan, package, path, finished, self.halt))
        for archived in archives:
            self.check(archived.path)
        return TaskResult(archives=archives, seconds=self.seconds, error=self.error_of(outcome, jobs, log))

    def error_of(self, outcome: Outcome, jobs: int, log: Path) -> MegabuildError | None:
        """Return the error of a failed worker or of missing packages, else None."""
        if not outcome.ok:
            aside = self._out / BROKEN
            broken = [path.name for path in aside.glob("*.conda")]
            return self.explain(outcome, jobs, log, aside=aside, broken=broken)
        missing = sorted(
            self._missing.keys() - {path.name for path in channel_folder.package_files(self._out)}
        )
        if not missing:
            return None
        return BuildError(
            f"{len(missing)} of {len(self._missing)} packages not built: {', '.join(missing)}\nlog: {log}",
            "correct the cause, then run again: finished packages are kept",
        )


def finish(
    plan: Plan, package: PlannedPackage, path: Path, folder: Path, halt: Callable[[], None]
) -> archive.Archive:
    """Write a normalised copy of a tested package below ``folder``, for publication, and verify it.

    A large package takes minutes; ``halt`` may raise to stop. Raises IntegrityError: It is not the planned package.
    """
    target = folder / path.parent.name / path.name
    local = plan.environment.local
    reproducible.normalise(path, target, plan.date, level=_COMPRESSION, local=local, halt=halt)
    return archive.verify(package, target)
