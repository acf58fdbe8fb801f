"""How long a plan takes: what is to be done, in the words of :mod:`megabuild.forecast`, and what is known of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from groundwork import files
from groundwork.resources.machine import measure
from megabuild.engine import ninja_log
from megabuild.engine.output_folder import staging_caches
from megabuild.forecast import known as store
from megabuild.forecast import shipped
from megabuild.forecast.known import Known
from megabuild.forecast.outline import Outline, Package, cost
from megabuild.forecast.share import at_load
from megabuild.plan import fingerprint, object_cache, tree_reuse
from megabuild.plan.estimate import Estimate, kind
from megabuild.plan.plan import Plan

#: What is measured is the least that it takes: disk is looked at now and then, memory after the fact.
_MARGIN = 1.2
#: Of a machine: how fast it is.
MACHINE = ("machine",)


def kind_of(plan: Plan) -> str:
    """Name the kind of a plan's build; nothing for somebody else's recipe."""
    variant = plan.config.variant
    if not {"torch_source", "torch_optimization"} <= variant.keys():
        return ""
    return kind(
        source=variant["torch_source"][0],
        cuda=plan.options.config.cuda_version is not None,
        optimization=variant["torch_optimization"][0],
    )


def names(plan: Plan) -> list[str]:
    """Return the names by which it is kept: the config's, then its kind's, for a config that was never built here."""
    of = kind_of(plan)
    return [plan.options.key, *([f"kind-{of}"] if of and plan.options.own else [])]


def read(plan: Plan, report: Callable[[str], None]) -> Known:
    """Return what is known of such builds: from earlier ones on this machine, else what comes with megabuild."""
    cache = plan.options.cache
    found = store.read(cache, names(plan), report)
    if found is not None:
        return found
    machine = store.read(cache, MACHINE, report)
    return shipped.known(kind_of(plan), machine.speed if machine else 1.0)


def compiles(plan: Plan) -> bool:
    """Return whether libtorch is compiled, or what else is staged."""
    inherits = any(fingerprint.inherits(package) for package in plan.missing)
    reused = plan.staging_decision.decision == "reuse" and staging_caches(plan.options.state / "out")
    return inherits and not reused and not plan.stored.staging


def outline(plan: Plan) -> Outline:
    """Return what is to be done."""
    return Outline(
        packages=tuple(
            Package(name=package.name, label=package.id.label, python=package.python or "")
            for package in plan.missing
        ),
        staged=compiles(plan),
        made=_made(plan),
        cached=bool(plan.known.cached)
        and plan.known.cached == inputs(plan)
        and not object_cache.lacking(plan),
        extensions={
            task.name: float(task.cpu_seconds) for task in plan.extensions.missing if task.how != "nothing"
        },
        jobs=plan.jobs.count,
        cores=measure().cores,
    )


def inputs(plan: Plan) -> str:
    """Return a digest of what objects are compiled from; not of the place, which an object cache leaves out as well."""
    staging = plan.staging
    dependency = {name: value for name, value in staging.dependency.items() if name != "place"}
    return fingerprint.digest([dependency, dict(staging.source)]) if staging.dependency else ""


def logged(plan: Plan, *, former: bool = False) -> dict[str, float]:
    """Return the seconds of ninja's steps in the compiled tree; a build wrote them, so they are only about right."""
    tree = plan.options.state / "tree"
    tree = tree_reuse.former(tree) if former else tree
    content = files.read_untrusted(tree / "build" / ".ninja_log", below=tree)
    return ninja_log.seconds((content or b"")[: ninja_log.MOST_BYTES])


def with_time(plan: Plan, figures: Estimate) -> Estimate:
    """Return an estimate with its time, and with the disk and memory of an earlier run if there was one."""
    todo, known = outline(plan), plan.known
    whole, pytorch = cost(todo, known), cost(replace(todo, extensions={}), known)
    largest = int(known.memory * _MARGIN) if plan.missing else 0
    return replace(
        figures,
        disk=int(known.disk * _MARGIN)
        if plan.missing and 0 < plan.rounds <= known.pythons and known.disk
        else figures.disk,
        memory_per_job=largest or figures.memory_per_job,
        # where no object is known to be heavy, any may be the largest
        memory_of_ordinary=figures.memory_of_ordinary if figures.memory_of_cuda or not largest else largest,
        cpu_hours=pytorch.cpu / 3600,
        hours=pytorch.seconds / 3600,
        cpu_hours_of_extensions=(whole.cpu - pytorch.cpu) / 3600,
        hours_of_extensions=(whole.seconds - pytorch.seconds) / 3600,
        hours_at_load=whole.seconds / at_load(todo.cores, todo.processors) / 3600,
        basis="the last run here" if known.measured and plan.missing else figures.basis,
    )


def _made(plan: Plan) -> frozenset[str]:
    """Return the steps that an interrupted compile has done."""
    if plan.staging_decision.decision != "resume":
        return frozenset()
    return frozenset(logged(plan, former=plan.staging_decision.former))
