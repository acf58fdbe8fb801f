"""Estimates disk, memory and time of a run, from a table or from the config's last run on this machine.

The table: Debian's PyTorch 2.6 with few features and the wheels of 2.13 were measured on two cores; the others are
reported for conda-forge's builds (pytorch-cpu-feedstock #210 and #298; for flash-attention pytorch #130443).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from groundwork.jobs import Jobs, bytes_per_compile, compile_jobs
from groundwork.machine import measure
from megabuild.plan import fingerprint, upstream_tests
from megabuild.plan.last_run import RunKind
from megabuild.plan.options import MODEL
from megabuild.plan.plan import Method, Plan, Task
from megabuild.plan.tree_reuse import TreeUse
from megabuild.providers.provider import Figures
from megabuild.providers.select import provider_of
from megabuild.run.duration import estimate_duration
from megabuild.run.ninja_log import share_of_objects
from megabuild.run.progress import Progress

GB = 1_000_000_000
#: For each heavy nvcc object compiled at a time: the largest reported, plus an ordinary object next to it.
_HEAVY_BYTES = 6 * GB
#: Share of a compile that is left with the objects of a config with another BLAS (docs/lab/measurements.md, "Objects
#: that configs share").
_SHARED = 0.03
#: Hours of a run that finds all objects in the cache, of libtorch in it, and of each Python (docs/lab/measurements.md).
_REBUILD_HOURS = 0.015
_REBUILD_LIBTORCH_HOURS = 0.035
_REBUILD_PYTHON_HOURS = 0.035
_MODEL = Figures(
    tree=0.1, package=0.05, per_python=0.02, memory=0.5, hours=0.01, python_hours=0.008, basis="measured rehearsals"
)  # fmt: skip
#: GB of the environment that all extensions' tasks share, and of each task.
_CUDA_ENVIRONMENT = 5.5
_CPU_ENVIRONMENT = 1.0
_TASK = 0.2


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Rough figures for the remaining work; all are 0 without a basis, except the jobs."""

    disk: int = 0  #: bytes of disk at the peak, packages included
    packages: int = 0  #: bytes of these that are packages, which stay when trees are removed
    memory_per_job: int = 0  #: bytes of memory of the largest compile
    memory_of_ordinary: int = 0  #: bytes of memory of every other compile than nvcc's few heavy ones
    cpu_hours: float = 0.0  #: CPU hours, without the object cache
    tests_cpu_hours: float = 0.0  #: CPU hours of them for PyTorch's own tests
    hours: float = 0.0  #: wall-clock hours, with the planned jobs
    expected: float = 0.0  #: seconds, by former runs alone; 0 without one
    #: seconds of libtorch's compile, by the table; 0 without one, or if the run finds objects of former runs
    compile_seconds: float = 0.0
    basis: str = ""  #: source of the figures, in a few words
    heavy_jobs: int = 0  #: how many of the jobs may compile heavy objects; 0 if no object is heavy
    jobs: Jobs = field(default_factory=lambda: Jobs(count=1, reason=""))  #: compile jobs at once


def estimate(progress: Progress) -> Estimate:
    """Estimate the work that is left."""
    plan = progress.plan
    machine = measure()
    memory = machine.memory_free
    if plan.options.memory:
        memory = min(memory, plan.options.memory)
    tasks = [task for task in progress.missing_tasks if task.method is not Method.NOTHING]
    figures = _figures_of(plan)
    needs = _memory_needs(plan, figures, tasks)
    jobs = compile_jobs(
        machine,
        bytes_per_job=needs.ordinary,
        most=memory,
        requested=plan.options.cpu_count,
        environ=os.environ,
    )
    pool = plan.options.pool
    if pool is not None:
        reason = f"of {pool.most} that configs built at the same time share"
        jobs = Jobs(count=pool.share, reason=reason)
    if figures is None:
        return Estimate(jobs=jobs)
    at_once = min(jobs.count, machine.cores)  # more jobs than cores are no faster
    tests_hours = _tests_hours(progress, figures)
    parallel_hours = tests_hours + _task_hours(tasks)
    libtorch_hours = _libtorch_hours(progress, figures)
    compile_hours = libtorch_hours + _python_hours(progress, figures)
    packing_hours = _base_packing_hours(progress, figures)
    cpu_hours = compile_hours + packing_hours + parallel_hours
    hours = (compile_hours + parallel_hours) / at_once + packing_hours
    compile_seconds = 0.0
    if not progress.has_objects:
        compile_seconds = libtorch_hours * 3600 / at_once
    basis = figures.basis
    if progress.kind in (RunKind.REBUILD, RunKind.REPACK):
        cpu_hours = _rebuild_hours(progress, figures) + parallel_hours
        hours = _rebuild_hours(progress, figures) + parallel_hours / at_once
        basis = "measured rebuilds"
    last = estimate_duration(progress, at_once)
    if last.seconds:
        hours = last.seconds / 3600
        basis = last.basis
    packages = 0.0
    if progress.missing:
        packages = figures.package + progress.rounds * figures.per_python
    disk = _disk(progress, figures, packages, tasks_at_once=min(jobs.count, len(tasks)))
    heavy_jobs = 0
    if needs.has_heavy:
        heavy_jobs = min(jobs.count, max(1, memory // _HEAVY_BYTES))
        if pool is not None:
            heavy_jobs = pool.heavy_jobs
    per_job = 0
    if progress.missing:
        per_job = needs.largest
    if tasks:
        per_job = max(per_job, needs.ordinary)
    return Estimate(
        disk=int(disk * GB),
        packages=int(packages * GB),
        memory_per_job=per_job,
        memory_of_ordinary=needs.ordinary,
        cpu_hours=round(cpu_hours, 3),
        tests_cpu_hours=round(tests_hours, 3),
        hours=round(hours, 3),
        expected=last.seconds,
        compile_seconds=round(compile_seconds),
        basis=basis,
        heavy_jobs=heavy_jobs,
        jobs=jobs,
    )


@dataclass(frozen=True, kw_only=True)
class _MemoryNeeds:
    """Bytes of memory of PyTorch's largest compile, and of an ordinary one of the run."""

    largest: int = 0
    ordinary: int = 0
    has_heavy: bool = False  #: few compiles, nvcc's, need much more than the others


def _memory_needs(plan: Plan, figures: Figures | None, tasks: Iterable[Task]) -> _MemoryNeeds:
    largest = 0
    if figures is not None:
        largest = int(figures.memory * GB)
    has_heavy = largest > bytes_per_compile(cuda=True)
    ordinary = bytes_per_compile(cuda=False) if has_heavy else largest
    if any(task.method is Method.COMPILE for task in tasks):
        ordinary = max(ordinary, bytes_per_compile(cuda=plan.has_cuda))
    return _MemoryNeeds(largest=largest, ordinary=ordinary, has_heavy=has_heavy)


def _figures_of(plan: Plan) -> Figures | None:
    """Return the table's figures; None for another feedstock's recipe, which has no source either."""
    if not plan.source:
        return None
    if plan.source == MODEL:
        return _MODEL
    provider = provider_of(plan.config)
    figures = provider.cuda_figures if plan.has_cuda else provider.cpu_figures
    if figures is not None and plan.options.optimization == "0":
        return figures.unoptimized()
    return figures


def _disk(progress: Progress, figures: Figures, packages: float, *, tasks_at_once: int) -> float:
    """Return the GB of disk at the peak."""
    disk = 0.0
    if (
        progress.missing
    ):  # one and a half trees while a package is made, the packages, their test environments
        disk = 1.5 * figures.tree + 3 * packages
    if tasks_at_once:
        environment = _CUDA_ENVIRONMENT if progress.plan.has_cuda else _CPU_ENVIRONMENT
        disk += environment + _TASK * tasks_at_once
    return disk


def _python_hours(progress: Progress, figures: Figures) -> float:
    """Return the CPU hours of the Pythons' compiles; libtorch's compile has the objects of its own Python."""
    rounds = progress.rounds
    if _has_base_python(progress):
        rounds -= 1
    hours = rounds * figures.python_hours
    if progress.plan.shared:
        hours *= _SHARED
    return hours


def _base_packing_hours(progress: Progress, figures: Figures) -> float:
    """Return the hours of the packages for libtorch's own Python, of which nothing is compiled: they are serial."""
    if _has_base_python(progress):
        return min(figures.python_hours, _REBUILD_PYTHON_HOURS)
    return 0.0


def _has_base_python(progress: Progress) -> bool:
    """Return whether packages are missing for the Python with which the staging output is compiled."""
    if not progress.needs_staging:
        return False
    base = progress.plan.base_python
    return any(package.python == base and fingerprint.inherits(package) for package in progress.missing)


def _libtorch_hours(progress: Progress, figures: Figures) -> float:
    """Return the CPU hours of libtorch's compile, or of the rest of one that was interrupted; 0 without a compile."""
    if not progress.compiles_staging:
        return 0.0
    hours = figures.hours
    if progress.plan.shared:
        hours *= _SHARED
    if progress.tree.use is TreeUse.RESUME and not progress.has_objects:
        hours *= 1 - share_of_objects(progress.plan.options.state / "tree")
    return hours


def _tests_hours(progress: Progress, figures: Figures) -> float:
    """Return the CPU hours of PyTorch's own tests for the Pythons that have not passed them yet."""
    hours = 0.0
    if progress.plan.untested:
        return hours
    for package in upstream_tests.tests_of(progress.missing):
        hours += figures.tests_hours
        if package.python == progress.plan.base_python:
            hours += figures.one_python_tests_hours
    return hours


def _task_hours(tasks: Iterable[Task]) -> float:
    return sum(task.cpu_seconds for task in tasks) / 3600


def _rebuild_hours(progress: Progress, figures: Figures) -> float:
    """Return the hours of PyTorch's part of a run that has all objects but few; most of it is serial."""
    hours = _REBUILD_HOURS + progress.rounds * _REBUILD_PYTHON_HOURS
    if progress.compiles_staging:
        hours += _REBUILD_LIBTORCH_HOURS
    return min(hours, figures.hours + progress.rounds * figures.python_hours)
