"""Preflight checks: find in seconds what a build would run into after hours."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from groundwork import redact
from groundwork.errors import IntegrityError, OutOfMemoryError, OutOfSpaceError, PreflightError
from groundwork.machine import disk_free, disk_of, measure
from groundwork.network.client import why_unreachable
from groundwork.text import counted
from megabuild.cleaning import size_of
from megabuild.isolation.base import Isolation
from megabuild.plan import stored, tree_reuse
from megabuild.plan.estimate import GB
from megabuild.plan.options import check_path
from megabuild.plan.plan import Plan
from megabuild.plan.solving import Solver

_SERVER_SECONDS = 15.0

Check = tuple[str, str]


def before_preparation(plan: Plan) -> Iterator[Check]:
    """Run what can be checked before anything is downloaded; raises as :func:`checks` does."""
    yield "disk", _check_disk(plan)
    if reached := reach_sources(plan):
        yield "source", reached


def checks(plan: Plan, isolation: Isolation) -> Iterator[Check]:
    """Run all checks that need no compiler, cheapest first; each gives its name and what it found.

    Raises MegabuildError: The first check that fails.
    """
    check_path(plan.options.state_inside(isolation))
    yield "path", str(plan.options.state)
    yield "disk", _check_disk(plan)
    yield "memory", _check_memory(plan)
    yield "source", _check_source(plan)
    isolation.check()
    yield "isolation", isolation.name
    # apart from packages that the run itself will make
    packages = [item.package for item in plan.items]
    solver = Solver(plan.environment, plan.options.config.platform, {package.name for package in packages})
    for package in packages:
        solver.built_with(package)
    yield "packages", f"{counted(solver.count, 'environment')} can be solved"


def _check_disk(plan: Plan) -> str:
    state, cache = plan.options.state, plan.options.cache
    kept = size_of(tree_reuse.kept(plan.staging_decision, state / "tree"))
    needed = max(plan.estimate.disk - (size_of(state) - kept), 0)
    needs = [(state, needed, "--output")]
    if first := plan.environment.to_make:  # downloads and what is packed of them
        needs.append((cache, first, "MEGABUILD_CACHE"))
        if disk_of(cache) == disk_of(state):
            needs = [(state, needed + first, "--output")]
    for folder, size, name in needs:
        if disk_free(folder) < size:
            remedy = f"free some space, or put {name} on another disk"
            if kept and folder == state:
                remedy += f", or remove {state}/tree*: a former compile, {kept / GB:.1f} GB"
            raise OutOfSpaceError(
                f"{folder}: {disk_free(folder) / GB:.1f} GB are free, about {size / GB:.1f} GB are needed",
                remedy,
            )
    return f"{disk_free(state) / GB:.0f} GB free, about {needs[0][1] / GB:.1f} GB needed"


def _check_memory(plan: Plan) -> str:
    machine, per_job = measure(), plan.estimate.memory_per_job
    if machine.memory < per_job:
        raise OutOfMemoryError(
            f"the largest compile takes about {per_job / GB:.1f} GB, this machine has {machine.memory / GB:.1f} GB",
            "build on a machine with more memory",
        )
    jobs = f"{counted(plan.jobs.count, 'compile job')} ({plan.jobs.reason})"
    heavy = f", heavy objects {plan.heavy_jobs} at a time" if 0 < plan.heavy_jobs < plan.jobs.count else ""
    return f"{machine.memory_free / GB:.1f} GB free, {jobs}{heavy}"


def reach_sources(plan: Plan) -> str:
    """Say where archives come from, once a server has answered for each that is needed and the engine has not kept."""
    answering: dict[str, None] = {}
    plan = stored.when_fetched(plan)
    reused = plan.staging_decision.decision == "reuse"
    sources = [source for package in plan.missing for source in package.archives]
    sources += [source for package in plan.missing for source in package.staging_archives if not reused]
    kept = {path.name.partition("_")[2] for path in (plan.options.state / "out/src_cache").glob("*_*")}
    for source in dict.fromkeys(sources):
        if any(url.rpartition("/")[2] in kept for url in source.urls):
            continue
        reasons = {url: why_unreachable(url, _SERVER_SECONDS) for url in source.urls}
        if all(reasons.values()):
            url, reason = next(iter(reasons.items()))
            raise PreflightError(
                f"the source {redact.address(url)} cannot be had: {reason}",
                "check the network, or name another address in the recipe",
            )
        hosts = (urlsplit(url).netloc.rpartition("@")[2] for url, reason in reasons.items() if not reason)
        answering |= dict.fromkeys(filter(None, hosts))
    return f"{', '.join(answering)} answers" if answering else ""


def _check_source(plan: Plan) -> str:
    options = plan.options
    variant = {**options.config.variant, **plan.overrides}
    if "torch_source" not in options.config.variant:
        return reach_sources(plan) or "in the recipe's folder"
    kind = next(iter(plan.overrides.get("torch_source", ())), options.config.variant["torch_source"][0])
    if kind == "official" and options.torch_source is None:
        digest = variant.get("torch_sha256", ("",))[0]
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise IntegrityError(
                f"{options.config.name} names no sha256 for the source of PyTorch {options.config.torch_version}",
                "add torch_sha256 to conda_build_config.yaml",
            )
        reached = reach_sources(plan)
        return f"official {options.config.torch_version}, sha256 {digest[:12]}…" + (
            reached and f", {reached}"
        )
    own = kind == "model" and options.torch_source is None
    folder = options.root / "rehearsal" / "model" if own else plan.environment.source
    if folder is None or not folder.is_dir() or not os.listdir(folder):
        raise PreflightError(
            f"there is no source tree at {folder}", "fetch it again: the provider's cache is incomplete"
        )
    return f"{kind} at {folder}"
