"""How the engine sees one task: a state folder of its own, PyTorch's packages as a channel, its share of the jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from megabuild.engine import cache
from megabuild.engine.job import Job
from megabuild.isolation.base import Isolation
from megabuild.run import publish
from megabuild.run.options import Options, Plan
from megabuild.run.place import COMPILER_LAUNCHER, VARIANT, View, Wanted, engine_environment, variant_file
from megabuild.run.place import view as lay_out
from megabuild.run.pyg.jobserver import makeflags
from megabuild.run.pyg.sources import BASE, git_key
from megabuild.run.pyg.tasks import Task

FIFO = "jobserver"
_TORCH = "torch"
_FOLDERS = ("pyg_lib_source_path", "pyg_metis_source_path")


def state(options: Options, task: Task) -> Path:
    """Return the folder of everything that a later run of a task continues from."""
    return options.state / "pyg" / task.name


def torch_channel(plan: Plan) -> Path:
    """Make a channel of the plan's published PyTorch packages, and of nothing else, and return it.

    The published channel itself is indexed anew whenever an extension is added, while other tasks read it.
    """
    options = plan.options
    folder = options.state / "pyg" / _TORCH
    known = publish.records(options.packages)
    records = [known[item.package.file_name] for item in plan.items if item.package.file_name in known]
    keep = {Path(record.path).name for record in records}
    cache.drop_packages(folder, keep=frozenset(keep))
    for record in records:
        cache.link(options.packages / record.path, folder / record.path)
    cache.index(folder, options.config.platform)
    return folder


def view(plan: Plan, task: Task, isolation: Isolation, shared: Path) -> View:
    """Lay out mounts and paths for one task.

    Parameters
    ----------
    plan:
        The run.
    task:
        The task.
    isolation:
        Where it runs.
    shared:
        The folder that configs share.
    """
    options = plan.options
    more = {key: Path(task.overrides[key][0]) for key in _FOLDERS if _is_folder(task, key)}
    base = task.overrides.get(BASE, ("",))[0]
    if base.startswith("file://"):
        more[BASE] = Path(base.removeprefix("file://"))
    clone = task.overrides.get(git_key(task.extension), ("",))[0]
    if clone.startswith("file://"):
        more[git_key(task.extension)] = Path(clone.removeprefix("file://"))
    if task.wheel is not None:
        more["wheel"] = task.wheel.parent
    seen = lay_out(
        plan,
        isolation,
        shared,
        Wanted(
            state=state(options, task),
            recipe=task.recipe,
            recipes=options.recipe.parent,
            channels=(options.state / "pyg" / _TORCH, *plan.environment.channels),
            more=more,
        ),
    )
    inside = {key: (seen.more[key],) for key in _FOLDERS if key in seen.more}
    for key in (BASE, git_key(task.extension)):
        if key in seen.more:
            inside[key] = (f"file://{seen.more[key]}",)
    variant_file(options.config, {**task.overrides, **inside}, state(options, task))
    return seen


def _is_folder(task: Task, key: str) -> bool:
    return task.overrides.get(key, ("None",))[0] not in ("", "None")


def job(
    plan: Plan,
    task: Task,
    seen: View,
    *,
    jobs: int,
    test: bool,
    leftovers: Sequence[str],
    published: Sequence[str],
) -> Job:
    """Describe one step of a task to the worker.

    Parameters
    ----------
    plan, task, seen:
        The run, the task, the task from inside.
    jobs:
        Limit on compile jobs over all tasks.
    test:
        Test the packages that ``leftovers`` names instead of building them.
    leftovers:
        Package files by path below the output folder.
    published:
        Names of package files in the output folder that only serve the tests.
    """
    options, inside = plan.options, seen.place.state_inside
    wheel = f"{seen.more['wheel']}/{task.wheel.name}" if task.wheel else ""
    return Job(
        recipe=seen.recipe,
        output_dir=f"{inside}/out",
        target_platform=options.config.platform,
        build_platform=options.config.platform,
        variant_config=[f"{inside}/{VARIANT}"],
        channels=seen.channels,
        test="native" if test else "skip",
        env={
            "PYG_CCACHE": f"{inside}/{COMPILER_LAUNCHER}",
            "PYG_WHEEL": wheel,
            "MAKEFLAGS": makeflags(f"{inside}/{FIFO}", jobs),
            "CPU_COUNT": str(jobs),
            **engine_environment(plan, seen),
        },
        planned=[package.file_name for package in task.packages],
        leftovers=leftovers,
        published=published,
        keep_build=options.debug,
    )
