"""Measures a complete run, for the estimates of later ones."""

from __future__ import annotations

import msgspec

from megabuild.plan.environment_inputs import ObjectCounts
from megabuild.plan.last_run import LastRuns, RunKind
from megabuild.run.build_output import Parser
from megabuild.run.ninja_log import read_ninja_log
from megabuild.run.progress import Progress


def measure_run(progress: Progress, parser: Parser, seconds: float) -> LastRuns:
    """Return the last runs with a run that ended well; ``progress`` is its begin, ``parser`` has read its output.

    A run that resumed a compile, or had a part of the packages, is no measure: the former runs stay.
    """
    last_runs = progress.plan.last_runs
    kind = progress.kind
    if kind is None:
        return last_runs
    costs = parser.costs(seconds, _compiled(progress, parser))
    last_runs = msgspec.structs.replace(last_runs, runs={**last_runs.runs, kind: costs})
    if kind is not RunKind.SCRATCH or progress.plan.shared:
        return last_runs  # objects from the cache say nothing of a compile
    steps = read_ninja_log(progress.plan.options.state / "tree")
    return msgspec.structs.replace(last_runs, object_seconds=steps.objects, link_seconds=steps.links)


def _compiled(progress: Progress, parser: Parser) -> ObjectCounts:
    """Return the objects that a run compiled: those that ninja built, without those in the object cache."""
    built = ObjectCounts(**parser.built)
    if progress.kind is not RunKind.REBUILD or progress.tree.missing is None:
        return built
    return built.added(ObjectCounts(), most=progress.tree.missing)
