"""Estimates a run's seconds from the last runs with the same options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from megabuild.plan.environment_inputs import ObjectCounts
from megabuild.plan.last_run import LastRuns, RunCosts, RunKind
from megabuild.run.progress import Progress

#: Seconds of an object that the cache finds by its inputs, and of one that it finds by its preprocessed text, as most
#: bindings (docs/lab/measurements.md).
_HIT = 0.05
_HIT_BY_TEXT = 0.9


@dataclass(frozen=True, kw_only=True)
class Duration:
    """An estimate, or none."""

    seconds: float = 0.0  #: 0 without a basis
    basis: str = ""  #: in a few words


def estimate_duration(progress: Progress, jobs: int) -> Duration:
    """Estimate the seconds of a run whose kind had a run before, or a run from which its fixed cost is known.

    ``jobs``: compilers at a time.
    """
    kind = progress.kind
    if kind is None:
        return Duration()
    last_runs = progress.plan.last_runs
    former = last_runs.runs.get(kind)
    scratch = last_runs.runs.get(RunKind.SCRATCH)
    missing = progress.tree.missing or ObjectCounts()
    if kind is RunKind.SCRATCH or (kind is RunKind.REPACK and former is not None):
        return _as_before(former)
    if former is not None:
        seconds = former.seconds + seconds_of(missing, last_runs.object_seconds, jobs)
        seconds -= min(former.compile, seconds_of(former.compiled, last_runs.object_seconds, jobs))
        seconds += _configure_seconds(progress) - former.configure
        return Duration(seconds=seconds, basis="the last rebuild here")
    if scratch is None:
        return Duration()
    seconds = scratch.fixed + _python_seconds(scratch, last_runs, progress.rounds, jobs)
    if kind is RunKind.REPACK:
        seconds -= scratch.sync + scratch.configure + scratch.install
    else:
        seconds += _configure_seconds(progress) - scratch.configure
        seconds += last_runs.link_seconds + seconds_of(missing, last_runs.object_seconds, jobs)
        if not progress.tree.is_complete and progress.tree.objects is not None:
            seconds += _HIT * progress.tree.objects.total / jobs
    return Duration(seconds=max(0.0, seconds), basis="the last run here, with its objects")


def _as_before(former: RunCosts | None) -> Duration:
    if former is None:
        return Duration()
    return Duration(seconds=former.seconds, basis="the last run here")


def _configure_seconds(progress: Progress) -> float:
    """Return the seconds of staging's CMake: 0 with a kept configuration, else those of the longest run."""
    if progress.tree.is_configured:
        return 0.0
    return max(costs.configure for costs in progress.plan.last_runs.runs.values())


def seconds_of(counts: ObjectCounts, object_seconds: Mapping[str, float], jobs: int) -> float:
    """Return the seconds in which so many objects compile, several ``jobs`` at a time."""
    work = 0.0
    longest = 0.0
    for kind, count in counts.by_kind().items():
        seconds = object_seconds.get(kind, 0.0)
        work += count * seconds
        if count:
            longest = max(longest, seconds)
    return max(work / jobs, longest)


def _python_seconds(scratch: RunCosts, last_runs: LastRuns, rounds: int, jobs: int) -> float:
    """Return the seconds of all Pythons' scripts if the cache has their bindings, from a run that compiled these."""
    compiled = max(0, rounds - 1) * scratch.compiled.bindings  # staging compiled those of one Python
    saved = max(0.0, last_runs.object_seconds.get("bindings", 0.0) - _HIT_BY_TEXT)
    return max(0.0, scratch.pythons - compiled * saved / jobs)
