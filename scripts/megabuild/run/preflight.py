"""Preflight checks: find in seconds the problems that would end a build after hours."""

from __future__ import annotations

import re

from groundwork import files
from groundwork.build_path import check_build_path
from groundwork.errors import IntegrityError, OutOfMemoryError, OutOfSpaceError, PreflightError
from groundwork.machine import disk_free, disk_of, forbids_programs, measure
from groundwork.shared_folder import refuse_foreign
from groundwork.text import counted
from megabuild.cleaning import size_of
from megabuild.isolation.base import Isolation
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.plan.plan import Plan
from megabuild.plan.solving import Solver
from megabuild.run.estimate import GB, Estimate
from megabuild.status.status import logger


def check(plan: Plan, estimate: Estimate, isolation: Isolation) -> None:
    """Run all checks that need no compiler, cheapest first, and log the free space and memory."""
    check_build_path(plan.options.state_inside(isolation))
    logger.info("checked disk: %s", check_disk(plan, estimate))
    machine = measure()
    per_job = estimate.memory_per_job
    if machine.memory < per_job:
        raise OutOfMemoryError(
            f"this machine has {machine.memory / GB:.1f} GB of memory; one compiler needs about {per_job / GB:.1f} GB",
            "build on a machine with more memory",
        )
    jobs = f"{counted(estimate.jobs.count, 'compile job')} ({estimate.jobs.reason})"
    logger.info("checked memory: %.1f GB free, %s", machine.memory_free / GB, jobs)
    config, kind = plan.config, plan.config.variant.get("torch_source", ("",))[0]
    if kind == "official" and plan.options.torch_source is None:
        digest = config.variant.get("torch_sha256", ("",))[0]
        # rattler-build takes a source with an empty sha256 unverified
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise IntegrityError(
                f"{config.name}: no torch_sha256 for the source of PyTorch {config.torch_version}",
                "add torch_sha256 to conda_build_config.yaml",
            )
    check_caches(plan, isolation)
    isolation.check()
    # without packages that the run itself makes
    packages = [item.package for item in plan.items]
    solver = Solver(plan.environment, plan.options.config.platform, {package.name for package in packages})
    for package in packages:
        solver.built_with(package)


def check_caches(plan: Plan, isolation: Isolation) -> None:
    """Check that the folders of the cache that builds write belong to this user.

    ccache ends every compile with an error if it cannot write, so another user's folder would fail the whole build.

    Raises PreflightError: A folder cannot be written to.
    """
    options = plan.options
    # as deep as ccache makes folders; packages below the other one are read
    for folder, levels in ((options.objects_folder(isolation), 2), (options.unpacked_folder(isolation), 1)):
        remedy = "make it writable for you, or set MEGABUILD_CACHE to a folder of your own"
        refuse_foreign(folder, remedy, levels=levels, root_is_limited=isinstance(isolation, Bubblewrap))
        files.writable(folder, remedy)


def check_disk(plan: Plan, estimate: Estimate) -> str:
    """Compare the disk space that a plan needs with the free space.

    Raises OutOfSpaceError: There is not enough space.
    Raises PreflightError: No program can be started from a disk.
    """
    state, cache, pending = plan.options.state, plan.options.cache, plan.environment.pending
    first = pending.bytes if pending else 0  # downloads, and packages made from them
    needed = max(estimate.disk - size_of(state), 0)
    needed += first if disk_of(cache) == disk_of(state) else 0
    for folder, size, name in ((state, needed, "--output"), (cache, first, "MEGABUILD_CACHE")):
        if forbids_programs(folder):
            raise PreflightError(
                f"{folder}: its disk is mounted noexec, so no program of a build can run there",
                f"move {name} to another disk",
            )
        if disk_free(folder) < size:
            free = f"{disk_free(folder) / GB:.1f} GB free, about {size / GB:.1f} GB needed"
            raise OutOfSpaceError(f"{folder}: {free}", f"free some space, or move {name} to another disk")
    return f"{disk_free(state) / GB:.0f} GB free"
