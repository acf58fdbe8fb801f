"""The task of one of PyTorch Geometric's extensions for one Python, against the PyTorch that the run has published."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from groundwork import channel_folder, files
from groundwork.errors import MegabuildError
from groundwork.jobs import Budget
from groundwork.redact import Mask
from groundwork.text import counted
from megabuild.engine.job import Job
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan, PlanItem, Task
from megabuild.plan.published import paths
from megabuild.run.build_task import BuildTask
from megabuild.run.logfile import LogFile
from megabuild.run.package_test import name_of
from megabuild.run.pytorch import NAME as PYTORCH
from megabuild.run.sandbox_paths import View, job, view
from megabuild.run.work import BROKEN, RunContext
from megabuild.status.status import Status, logger
from pyg_extensions.sources import BASE
from pyg_extensions.table import archs_of, find

#: A channel of the run's own PyTorch, beside the folders of tasks.
_TORCH = "torch"


class ExtensionWork(BuildTask):
    """Builds one extension for one Python, beside the tests of the PyTorch that it is for."""

    def __init__(self, run: RunContext, budget: Budget, task: Task) -> None:
        super().__init__(run, folder(run.plan.options) / task.name, budget)
        self.name = task.name
        self.needs = (PYTORCH, *task.needs)
        ours = (item.package for item in run.plan.items if item.package.python in (None, task.base_python))
        self.publish_after = tuple(name_of(package.file_name) for package in ours)
        self.cpu_seconds = task.cpu_seconds
        if task.how == "compile" and shutil.which(os.environ.get("TORCH_CCACHE", "") or "ccache"):
            # what one Python's build compiles, the next finds in the object cache
            self.alone = task.extension
        self._task = task
        self.labels = tuple(package.id.label for package in task.packages)

    @property
    def items(self) -> Sequence[PlanItem]:
        return self._task.items

    def log(self) -> AbstractContextManager[LogFile]:
        """Open a log of its own: several tasks' lines in one would be no use to anybody."""
        return LogFile(self._state / "logs", self.name, Mask(os.environ))

    def dependencies(self) -> list[Path]:
        """Return packages of other extensions besides."""
        others = (task for task in self._plan.extensions.tasks if task.name in self._task.needs)
        names = (package.file_name for task in others for package in task.packages)
        return [*super().dependencies(), *paths(self._plan.options.packages, names)]

    def describe(self, jobs: int) -> tuple[View, Job]:
        """Mount its sources, its wheel and PyTorch's packages besides the usual."""
        plan, task = self._plan, self._task
        local = self._local()
        more = {key: Path(value.removeprefix("file://")) for key, value in local.items()}
        if task.wheel is not None:
            more["wheel"] = task.wheel.parent
        channels = (folder(plan.options) / _TORCH, *plan.environment.channels)
        seen = view(
            plan, self._run.isolation, state=self._state, recipe=task.recipe, channels=channels, more=more
        )
        inside = {
            key: (f"file://{seen.more[key]}" if value.startswith("file://") else seen.more[key],)
            for key, value in local.items()
        }
        env = {
            "PYG_CCACHE": seen.launcher,
            "PYG_WHEEL": f"{seen.more['wheel']}/{task.wheel.name}" if task.wheel else "",
            "MAKEFLAGS": "",  # a jobserver of somebody who started us has nothing to do with our share of the jobs
        }
        return seen, job(plan, seen, {**task.overrides, **inside}, jobs=jobs, env=env)

    def _local(self) -> dict[str, str]:
        """Return the variant values that name folders on this machine: as paths, or as file URLs."""
        extension, overrides = find(self._task.extension), self._task.overrides
        keys = [BASE, f"{extension.key}_git", *([extension.checkout.key] if extension.checkout else [])]
        values = {key: overrides.get(key, ("",))[0] for key in keys}
        return {key: value for key, value in values.items() if value.startswith(("/", "file://"))}

    def check(self, package: Path) -> None:
        """Check its kernels and the PyTorch that it was built against."""
        from pyg_extensions import contents  # not before: runs without extensions need none of it

        config = self._plan.config
        contents.check_package(
            package,
            accelerator=config.accelerator,
            archs=archs_of(config.variant),
            python=self._task.python,
            torch_version=config.torch_version,
        )

    def mend(self, error: MegabuildError) -> str:
        """Put back a package whose test the network has ended: it is tested once more, not built."""
        done = super().mend(error)
        for path in list((self._out / BROKEN).glob("*.conda")) if done else ():
            package = self._wanted.get(path.name)
            if package is not None:
                files.move(path, self._out / package.subdir / path.name)
        return done

    def report_retry(self, error: MegabuildError, jobs: int) -> None:
        """Report another attempt, with fewer jobs."""
        report_jobs(self._run.status, jobs, f"{self.name} ran out of memory and is built once more")


def report_jobs(status: Status, count: int, reason: str) -> None:
    """Report that from now on another number of compile jobs runs at once, all extensions together."""
    status.record.jobs = count
    logger.info("%s at once for all extensions together (%s)", counted(count, "compile job"), reason)


def folder(options: Options) -> Path:
    """Return the folder in which every task has one of its own."""
    return options.state / "pyg"


def make_torch_channel(plan: Plan, built: Path) -> None:
    """Make a channel of the plan's PyTorch packages, and of nothing else: what was published, and below ``built``.

    The published channel itself is indexed anew whenever a package is added, while other tasks read it.
    """
    options = plan.options
    channel = folder(options) / _TORCH
    known = paths(options.packages, (item.package.file_name for item in plan.items if item.exists))
    there = [*known, *channel_folder.package_files(built)]
    channel_folder.drop_packages(channel, keep=frozenset(path.name for path in there))
    for path in there:
        files.link(path, channel / path.parent.name / path.name)
    channel_folder.index(channel, options.config.platform)
