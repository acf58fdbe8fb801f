"""Preflight checks: find in seconds the problems that would end a build after hours."""

from __future__ import annotations

import re
from pathlib import Path

from groundwork import files
from groundwork.build_path import check_build_path
from groundwork.errors import IntegrityError, OutOfMemoryError, OutOfSpaceError, PreflightError
from groundwork.machine import disk_free, disk_of, forbids_programs, measure
from groundwork.shared_folder import refuse_foreign
from groundwork.text import counted
from megabuild.cleaning import size_of
from megabuild.isolation.base import Isolation
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.plan.options import OFFICIAL
from megabuild.plan.plan import Plan
from megabuild.plan.solving import Solver
from megabuild.run.estimate import GB, Estimate
from megabuild.status.status import logger


def check(plan: Plan, estimate: Estimate, isolation: Isolation) -> None:
    """Run all checks that need no compiler, cheapest first, and log the free space and memory."""
    check_build_path(plan.options.state_inside(isolation))
    logger.info("checked disk: %s", check_disk(plan, estimate))
    _check_memory(estimate)
    _check_source(plan)
    check_caches(plan, isolation)
    isolation.check()
    packages = [item.package for item in plan.items]
    solver = Solver(plan.environment, plan.options.config.platforms, packages)
    for package in packages:
        solver.built_with(package)


def _check_memory(estimate: Estimate) -> None:
    machine = measure()
    per_job = estimate.memory_per_job
    if machine.memory < per_job:
        raise OutOfMemoryError(
            f"this machine has {machine.memory / GB:.1f} GB of memory; one compiler needs about {per_job / GB:.1f} GB",
            "build on a machine with more memory",
        )
    jobs = f"{counted(estimate.jobs.count, 'compile job')} ({estimate.jobs.reason})"
    logger.info("checked memory: %.1f GB free, %s", machine.memory_free / GB, jobs)


def _check_source(plan: Plan) -> None:
    """Check that the official source has a hash: rattler-build takes a source with an empty sha256 unverified."""
    config = plan.config
    if plan.options.torch_source is not None or plan.source != OFFICIAL:
        return
    digest = config.variant.get("torch_sha256", ("",))[0]
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise IntegrityError(
            f"{config.name}: no torch_sha256 for the source of PyTorch {config.torch_version}",
            "add torch_sha256 to conda_build_config.yaml",
        )


def check_caches(plan: Plan, isolation: Isolation) -> None:
    """Check that the folders of the cache that builds write belong to this user.

    ccache ends every compile with an error if it cannot write, so another user's folder would fail the whole build.

    Raises PreflightError: A folder cannot be written to.
    """
    options = plan.options
    remedy = "make it writable for you, or set MEGABUILD_CACHE to a folder of your own"
    # as deep as ccache makes folders; packages below the other one are read
    levels_of = {options.objects_folder(isolation): 2, options.unpacked_folder(isolation): 1}
    for folder, levels in levels_of.items():
        refuse_foreign(folder, remedy, levels=levels, root_is_limited=isinstance(isolation, Bubblewrap))
        files.writable(folder, remedy)


def check_disk(plan: Plan, estimate: Estimate) -> str:
    """Compare the disk space that a plan needs with the free space.

    Raises OutOfSpaceError: There is not enough space.
    Raises PreflightError: No program can be started from a disk.
    """
    state = plan.options.state
    cache = plan.options.cache
    needed = max(estimate.disk - size_of(state), 0)
    first = 0  # downloads, and packages made from them
    if plan.environment.pending is not None:
        first = plan.environment.pending.bytes
    if disk_of(cache) == disk_of(state):
        needed += first
    _check_folder(state, needed, "--output")
    _check_folder(cache, first, "MEGABUILD_CACHE")
    return f"{disk_free(state) / GB:.0f} GB free"


def _check_folder(folder: Path, needed: int, name: str) -> None:
    """Check a folder, which ``name`` moves, for ``needed`` bytes."""
    if forbids_programs(folder):
        raise PreflightError(
            f"{folder}: its disk is mounted noexec, so no program of a build can run there",
            f"move {name} to another disk",
        )
    if disk_free(folder) < needed:
        free = f"{disk_free(folder) / GB:.1f} GB free, about {needed / GB:.1f} GB needed"
        raise OutOfSpaceError(f"{folder}: {free}", f"free some space, or move {name} to another disk")
