"""Builds packages with rattler-build in one attempt at a task: prepares its folder, reports and verifies packages."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from groundwork import channel_folder
from groundwork.errors import BuildError, MegabuildError
from groundwork.exhaustive import assert_never
from groundwork.progress import title
from groundwork.text import Sign, duration
from megabuild.configs.render import PlannedPackage
from megabuild.engine import archive, output_folder, reproducible
from megabuild.engine.job import Job, Outcome
from megabuild.engine.supervisor import Place
from megabuild.plan.plan import PlanItem
from megabuild.run.attempt import BROKEN, Attempt
from megabuild.run.build_output import COMPILE, BuildStep, StepKind
from megabuild.run.progress import Progress
from megabuild.run.shelf import Shelf
from megabuild.status.record import PackageState
from megabuild.status.status import logger
from megabuild.store.published import paths

#: zstd's level for packages. libtorch 2.13.0 for the CPU: 93 MB in 11 CPU seconds; at level 17, 87 MB in 162.
_COMPRESSION = 10


class PackageBuild:
    """The build of the missing ones among ``items``, the packages of one recipe.

    Packages that an earlier run built from the same inputs are only tested. rattler-build also gets the published
    ``items`` and the published files ``needs``, since it needs them to build or test the others. A ``shelf`` gets a
    copy of each package that is built. ``seconds`` has the durations of build scripts by file name, also those of
    earlier attempts.
    """

    def __init__(
        self, attempt: Attempt, progress: Progress, items: Sequence[PlanItem], seconds: dict[str, float], *,
        needs: Sequence[str] = (), shelf: Shelf | None = None,
    ) -> None:  # fmt: skip
        self._attempt = attempt
        self._seconds = seconds
        self._shelf = shelf
        self._out = attempt.state / "out"
        options = progress.plan.options
        self.missing: dict[str, PlannedPackage] = {}
        published = list(needs)
        for item in items:
            name = item.file_name
            if name in progress.existing:
                published.append(name)
            else:
                self.missing[name] = item.package
        untested = output_folder.prepare_output(
            attempt.state,
            inputs={item.file_name: item.fingerprint for item in items},
            published=paths(options.packages, published),
            platform=options.config.platform,
        )
        self._counted_staging = False
        self._seen = self._names()
        for name in untested:
            self._keep(self._out / name)

    def _names(self) -> set[str]:
        """Return the names of the package files in the output folder."""
        return {path.name for path in channel_folder.package_files(self._out)}

    def run(self, sandbox: Place, job: Job) -> tuple[Outcome, MegabuildError | None]:
        """Build the missing packages; return how that ended, and the error of the worker or of missing packages."""
        attempt = self._attempt
        outcome = attempt.follow(sandbox, job, self._take)
        output_folder.seal_stagings(self._out)
        if not outcome.ok:
            aside = self._out / BROKEN
            broken = [path.name for path in aside.glob("*.conda")]
            return outcome, attempt.explain(outcome, sandbox, aside=aside, broken=broken)
        missing = sorted(self.missing.keys() - self._names())
        if not missing:
            return outcome, None
        error = BuildError(
            f"{len(missing)} of {len(self.missing)} packages not built: {', '.join(missing)}\nlog: {attempt.log.path}",
            "correct the cause, then run again: finished packages are kept",
        )
        error.packages = frozenset(missing)
        return outcome, error

    def _take(self, steps: Iterable[BuildStep]) -> None:
        for step in steps:
            self._show(step)
            if step.kind is not StepKind.COUNT:
                self._look()
        self._look()

    def _show(self, step: BuildStep) -> None:
        """Show a step of the build scripts in the status."""
        attempt = self._attempt
        row = attempt.row
        match step.kind:
            case StepKind.COUNT:
                row.advance(step.done, step.total)
            case StepKind.PHASE:
                attempt.phase = step.phase
                label = title(step.package or attempt.run.plan.staged_name, step.python, step.phase)
                expected = 0.0
                if not step.package and step.phase == COMPILE:
                    expected = attempt.run.estimate.compile_seconds
                row.phase(label, expected=expected)
            case StepKind.PACKAGE:
                output_folder.seal_stagings(self._out)  # before packages are made from a finished staging
                row.phase(title(step.package, step.python, "build script"), level=logging.DEBUG)
            case StepKind.TEST:  # it names its package without the build string
                row.phase(f"testing {attempt.name}")
                tested = [name for name, package in self.missing.items() if package.name == step.package]
                attempt.run.status.set_packages(tested, PackageState.TESTING)
            case never:
                assert_never(never)

    def _look(self) -> None:
        """Report new packages in the output folder."""
        for path in channel_folder.package_files(self._out):
            if path.name not in self._seen:
                self._seen.add(path.name)
                if path.name in self.missing:
                    self._take_package(path)

    def _take_package(self, path: Path) -> None:
        package = self.missing[path.name]
        seconds = self._seconds_of(package)
        self._seconds[path.name] = seconds
        took = f" in {duration(seconds)}" if round(seconds) else ""
        logger.info("%s %s: built%s", Sign.done, package.id.label, took)
        self._attempt.run.status.set_packages([path.name], PackageState.BUILT)
        self._attempt.row.phase("waiting for rattler-build", level=logging.DEBUG)
        self._keep(path)

    def _seconds_of(self, package: PlannedPackage) -> float:
        """Return the duration of a new package's build; the compile counts for the first package without a Python."""
        is_libtorch = bool(package.staging) and not package.python and not self._counted_staging
        self._counted_staging = self._counted_staging or is_libtorch
        return round(self._attempt.parser.seconds_of(package.id, with_staging=is_libtorch), 1)

    def _keep(self, package: Path) -> None:
        if self._shelf is not None:
            self._shelf.add(package, self._seconds.get(package.name, 0.0))

    def finish(self, outcome: Outcome) -> list[archive.Archive]:
        """Verify the packages that passed their tests, even if others failed; without tests, all if none failed."""
        passed: Collection[str] = outcome.passed
        if self._attempt.run.plan.untested and outcome.ok:
            passed = self.missing
        finished = self._attempt.state / output_folder.FINISHED
        archives = []
        for path in channel_folder.package_files(self._out):
            if path.name in self.missing and path.name in passed:
                package = self.missing[path.name]
                self._attempt.row.phase(title(package.name, package.python or "", "normalise"))
                archives.append(finish(self._attempt, package, path, finished))
        return archives


def finish(attempt: Attempt, package: PlannedPackage, path: Path, folder: Path) -> archive.Archive:
    """Write a normalised copy of a tested package below ``folder``, for publication, and verify it.

    Raises IntegrityError: It is not the planned package.
    """
    target = folder / path.parent.name / path.name
    plan = attempt.run.plan
    # rattler-build saw folders with an index
    servers = [each.address for each in plan.environment.channels if each.folder and each.is_on_server]
    # a large package takes minutes
    reproducible.normalise(
        path,
        target,
        plan.date,
        level=_COMPRESSION,
        local=plan.environment.local,
        channels=servers,
        halt=attempt.halt,
    )
    return archive.verify(package, target)
