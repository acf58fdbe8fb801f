"""The task that builds one PyTorch Geometric extension for one Python, against the run's own PyTorch."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from groundwork import channel_folder, files
from groundwork.channel import Channel
from groundwork.jobs import Budget
from groundwork.redact import Mask
from megabuild.engine.job import Job
from megabuild.engine.supervisor import Place
from megabuild.plan import upstream_tests
from megabuild.plan.options import object_cache_program
from megabuild.plan.plan import Method, Task
from megabuild.run.attempt import Attempt, RunContext
from megabuild.run.graph import TaskResult, Work
from megabuild.run.launcher import COMPILER_LAUNCHER
from megabuild.run.logfile import LogFile
from megabuild.run.package_build import PackageBuild
from megabuild.run.progress import Progress
from megabuild.run.pytorch import NAME as PYTORCH
from megabuild.run.sandbox_paths import JobPart, make_job, make_place
from megabuild.run.summary import name_of_test
from megabuild.store.published import paths
from pyg_extensions.sources import BASE
from pyg_extensions.table import archs_of, find

#: In a state folder: the tasks' folders.
_FOLDER = "pyg"
#: In a state folder: a channel of the run's own PyTorch.
_TORCH = "pyg/torch"


def extension_work(run: RunContext, budget: Budget, task: Task) -> Work:
    """Return the task that builds one extension for one Python, after the tests of that Python's PyTorch.

    PyTorch's own tests are not among these: they take hours, and the extension is also built if one of them fails.
    """
    tests = []
    for item in run.plan.items:
        package = item.package
        if package.python in (None, task.base_python) and package.name != upstream_tests.PACKAGE:
            tests.append(name_of_test(item.file_name))
    launcher = object_cache_program()
    uses_cache = task.method is Method.COMPILE and shutil.which(launcher)
    return Work(
        name=task.name,
        run=partial(_build, run, task, {}),
        budget=budget,
        needs=(PYTORCH, *task.needs, *tests),
        cpu_seconds=task.cpu_seconds,
        # one Python at a time: the next one finds the objects in the cache
        alone=task.extension if uses_cache else "",
        packages=task.file_names,
    )


def _build(
    run: RunContext, task: Task, seconds: dict[str, float], jobs: int, stop: threading.Event
) -> TaskResult:
    """Build the extension with a log of its own, because several tasks run in parallel; then check its packages.

    ``seconds``: durations of build scripts by file name, kept from attempt to attempt.
    """
    from pyg_extensions import find_wheel  # imported late: only runs with extensions need it

    plan = run.plan
    config = plan.config
    state = plan.options.state / _FOLDER / task.name
    needs = []
    for other in plan.extensions:
        if other.name in task.needs:
            needs += other.file_names
    with (
        LogFile(state / "logs", task.name, Mask(os.environ)) as log,
        Attempt(run, task.name, state, jobs=jobs, stop=stop, log=log, level=logging.DEBUG) as attempt,
    ):
        log.become_latest()
        build = PackageBuild(attempt, run.progress, task.items, seconds, needs=needs)
        sandbox, job = _describe(task, attempt, planned=list(build.missing))
        outcome, error = build.run(sandbox, job)
        archives = build.finish(outcome)
        for archived in archives:  # its kernels, and the PyTorch that it was built against
            find_wheel.check_package(
                archived.path,
                accelerator=config.accelerator,
                archs=archs_of(config.variant),
                python=task.python,
                torch_version=config.torch_version,
            )
        return TaskResult(archives=archives, seconds=seconds, error=error)


def _describe(task: Task, attempt: Attempt, *, planned: Sequence[str]) -> tuple[Place, Job]:
    """Return the worker's paths, with the extension's sources, wheel and PyTorch's packages, and its job."""
    plan = attempt.run.plan
    local = _local_sources(task)
    more = {key: Path(value.removeprefix("file://")) for key, value in local.items()}
    if task.wheel is not None:
        more["wheel"] = task.wheel.parent
    channels = (Channel.of_folder(plan.options.state / _TORCH), *plan.environment.channels)
    sandbox = make_place(attempt, recipe=task.recipe, channels=channels, more=more, takes_jobs=True)
    overrides = dict(task.overrides)
    for key, value in local.items():
        scheme = "file://" if value.startswith("file://") else ""
        overrides[key] = (f"{scheme}{sandbox.more[key]}",)
    env = {
        "PYG_CCACHE": f"{sandbox.state_inside}/{COMPILER_LAUNCHER}",
        "PYG_WHEEL": f"{sandbox.more['wheel']}/{task.wheel.name}" if task.wheel else "",
        "MAKEFLAGS": "",  # the caller's jobserver does not know this task's share of the jobs; the pool's replaces it
    }
    part = JobPart(planned=planned, test_built=not plan.untested, env=env)
    return sandbox, make_job(attempt, sandbox, part, overrides=overrides)


def _local_sources(task: Task) -> dict[str, str]:
    """Return the paths and ``file://`` URLs of sources on this machine, by variant key."""
    extension = find(task.extension)
    keys = [BASE, f"{extension.key}_git"]
    if extension.checkout is not None:
        keys.append(extension.checkout.key)
    values = {key: task.overrides.get(key, ("",))[0] for key in keys}
    return {key: value for key, value in values.items() if value.startswith(("/", "file://"))}


def make_torch_channel(progress: Progress, built: Path) -> None:
    """Make a channel of the plan's PyTorch packages only: the published ones, and those below ``built``.

    Extensions cannot use the published channel, which is reindexed whenever a package is added.
    """
    options = progress.plan.options
    channel = options.state / _TORCH
    published = paths(options.packages, progress.published_torch)
    packages = [*published, *channel_folder.package_files(built)]
    channel_folder.drop_packages(channel, keep=frozenset(path.name for path in packages))
    for path in packages:
        files.link(path, channel / path.parent.name / path.name)
    channel_folder.index(channel, options.config.platform)
