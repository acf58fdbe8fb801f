"""The task that builds one PyTorch Geometric extension for one Python, against the run's own PyTorch."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from groundwork import channel_folder, files
from groundwork.jobs import Budget
from groundwork.redact import Mask
from megabuild.engine.job import Job
from megabuild.plan.plan import Plan, PlanItem, Task
from megabuild.plan.published import paths
from megabuild.run.build_task import BuildTask
from megabuild.run.logfile import LogFile
from megabuild.run.pytorch import NAME as PYTORCH
from megabuild.run.sandbox_paths import SandboxPaths, job, make_sandbox_paths
from megabuild.run.summary import name_of_test
from megabuild.run.work import RunContext
from pyg_extensions.sources import BASE
from pyg_extensions.table import archs_of, find

#: Subfolders of a state folder: the tasks' folders, and a channel of the run's own PyTorch.
_FOLDER, _TORCH = "pyg", "pyg/torch"


class ExtensionWork(BuildTask):
    """Builds one extension for one Python, after the tests of that Python's PyTorch."""

    def __init__(self, run: RunContext, budget: Budget, task: Task) -> None:
        super().__init__(run, run.plan.options.state / _FOLDER / task.name, budget)
        self.name = task.name
        ours = (item.package for item in run.plan.items if item.package.python in (None, task.base_python))
        self.needs = (PYTORCH, *task.needs, *(name_of_test(package.file_name) for package in ours))
        self.cpu_seconds = task.cpu_seconds
        if task.how == "compile" and shutil.which(os.environ.get("TORCH_CCACHE", "") or "ccache"):
            self.alone = task.extension  # one Python at a time: the next one finds the objects in the cache
        self._task = task
        self.labels = tuple(package.id.label for package in task.packages)

    @property
    def items(self) -> Sequence[PlanItem]:
        return self._task.items

    def log(self) -> AbstractContextManager[LogFile]:
        """Open the task's own log, because several tasks run in parallel."""
        return LogFile(self._state / "logs", self.name, Mask(os.environ))

    def dependencies(self) -> list[Path]:
        """Return also the packages of extensions that this one needs."""
        others = (task for task in self._plan.extensions.tasks if task.name in self._task.needs)
        names = (package.file_name for task in others for package in task.packages)
        return [*super().dependencies(), *paths(self._plan.options.packages, names)]

    def describe(self, jobs: int) -> tuple[SandboxPaths, Job]:
        """Also mount the extension's sources and wheel, and a channel of PyTorch's packages."""
        plan, task = self._plan, self._task
        extension = find(task.extension)
        keys = [BASE, f"{extension.key}_git", *([extension.checkout.key] if extension.checkout else [])]
        values = {key: task.overrides.get(key, ("",))[0] for key in keys}
        local = {key: value for key, value in values.items() if value.startswith(("/", "file://"))}
        more = {key: Path(value.removeprefix("file://")) for key, value in local.items()}
        if task.wheel is not None:
            more["wheel"] = task.wheel.parent
        channels = (plan.options.state / _TORCH, *plan.environment.channels)
        sandbox = make_sandbox_paths(
            plan, self._run.isolation, state=self._state, recipe=task.recipe, channels=channels, more=more
        )
        inside = {
            key: (f"file://{sandbox.more[key]}" if value.startswith("file://") else sandbox.more[key],)
            for key, value in local.items()
        }
        env = {
            "PYG_CCACHE": sandbox.launcher,
            "PYG_WHEEL": f"{sandbox.more['wheel']}/{task.wheel.name}" if task.wheel else "",
            "MAKEFLAGS": "",  # the caller's jobserver does not know this task's share of the jobs
        }
        return sandbox, job(plan, sandbox, {**task.overrides, **inside}, jobs=jobs, env=env)

    def check(self, package: Path) -> None:
        """Check the package's kernels and the PyTorch that it was built against."""
        from pyg_extensions import find_wheel  # imported late: only runs with extensions need it

        config = self._plan.config
        find_wheel.check_package(
            package,
            accelerator=config.accelerator,
            archs=archs_of(config.variant),
            python=self._task.python,
            torch_version=config.torch_version,
        )


def make_torch_channel(plan: Plan, built: Path) -> None:
    """Make a channel of the plan's PyTorch packages only: the published ones, and those below ``built``.

    Extensions cannot use the published channel, which is reindexed whenever a package is added.
    """
    options = plan.options
    channel = options.state / _TORCH
    published = paths(options.packages, (item.package.file_name for item in plan.items if item.exists))
    packages = [*published, *channel_folder.package_files(built)]
    channel_folder.drop_packages(channel, keep=frozenset(path.name for path in packages))
    for path in packages:
        files.link(path, channel / path.parent.name / path.name)
    channel_folder.index(channel, options.config.platform)
