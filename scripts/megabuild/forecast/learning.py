"""From what a run took to what is known for the next one, whether it was whole, resumed or answered by a cache."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

from megabuild.forecast.forecast import Forecast
from megabuild.forecast.known import Known
from megabuild.forecast.outline import COMPILE, HIT_SECONDS, is_object
from megabuild.forecast.steps import is_unheard_of

#: So many objects at least say how fast a machine is.
_ENOUGH = 10
#: CPU seconds in front of a compiler: ninja, the object cache, what waits for memory.
_LAUNCHER_SECONDS = 0.03


def learned(
    known: Known, run: Forecast, *, compiled: Mapping[str, float], logged: Mapping[str, float]
) -> Known:
    """Return what is known after a run.

    ``compiled`` has the CPU seconds of objects that a compiler made, ``logged`` those on the clock of ninja's steps,
    earlier runs' among them. An object in ``logged`` alone came out of the object cache, or was compiled by a run that
    was killed: where nothing better is known of it, the clock counts as far as the machine was ours.
    """
    both = [name for name in compiled if logged.get(name, 0.0) > HIT_SECONDS]
    seconds = sum(logged[name] for name in both)
    share = min(1.0, sum(compiled[name] for name in both) / seconds) if seconds else 1.0

    def took(name: str, seen: float) -> float:
        if name in compiled:
            return compiled[name] + _LAUNCHER_SECONDS
        if name in known.steps and (is_object(name) or name not in logged):
            return known.steps[name]
        return logged[name] * share if name in logged else seen

    # a run that ended before ninja knows no better what is left
    new = known.without(is_unheard_of) if run.steps.ran else known
    for phase, names in run.steps.ran.items():
        # as they begin: what runs is taken to be what comes first
        begun = sorted(names, key=lambda name: names[name][0] - logged.get(name, names[name][1]))
        found = {name: took(name, names[name][1]) for name in begun}
        new = new.with_steps(phase, found, whole=phase in run.steps.whole)
    ran = {name for names in new.order.values() for name in names}
    if left := {name: took(name, 0.0) for name in logged if is_object(name) and name not in ran}:
        new = new.with_steps(COMPILE, left, whole=False)
    phase, left = run.unheard_of
    if left:  # the next plan is not to take them for made
        new = new.with_steps(phase, left, whole=False)
    found = {key: statistics.fmean(times) for key, times in run.took.items()}
    if known.measured:
        found = {key: (seconds + known.phases.get(key, seconds)) / 2 for key, seconds in found.items()}
    # in the order in which they came; what an unfinished script did not come to comes after
    kept = {
        key: seconds
        for key, seconds in known.phases.items()
        if key not in found and _of(key) not in run.finished
    }
    return replace(new, phases={**found, **kept}, measured=True)


def speed(shipped: Known, compiled: Mapping[str, float]) -> float | None:
    """Return how many CPU seconds objects took here for each that is shipped; None where too few say so."""
    folders = {name.partition("#")[0]: took for name, took in shipped.steps.items() if "#" in name}
    usual = {name: folders.get(f"{name.rpartition('/')[0]}/", 0.0) for name in compiled}
    both = [name for name in compiled if usual[name] > 0]
    if len(both) < _ENOUGH:
        return None
    return sum(compiled[name] for name in both) / sum(usual[name] for name in both)


def _of(key: str) -> str:
    """Return whose phase something is."""
    return key.rpartition(" ")[0]
