"""Decides which of several configs are built at the same time.

Configs of one toolchain are a group: they share objects, so that the second one waits for those of the first. A config
whose objects exist but a few waits for none, and is a group alone. Groups are built side by side as far as jobs, memory
and disk allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from groundwork.machine import disk_free, measure
from groundwork.text import counted, size
from megabuild.cleaning import size_of
from megabuild.configs.config import Config
from megabuild.configs.sharing import group_by_toolchain
from megabuild.providers.environment import Pending
from megabuild.run.outlook import Outlook

_ONE = "one config at a time"


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """The order of several configs."""

    groups: Sequence[Sequence[str]]  #: names; those of one group are built one after the other
    places: int  #: groups that are built at the same time
    jobs: int  #: compile jobs of all configs together
    heavy_jobs: int  #: how many of the jobs may compile heavy objects; 0 if no object is heavy
    #: a waiting config starts while the packages of another one are tested
    starts_early: bool = False
    reason: str = ""  #: why not all groups are built at the same time

    @property
    def is_side_by_side(self) -> bool:
        """Whether several configs are built at the same time."""
        return self.places > 1

    def lines(self) -> list[str]:
        """Return the order as text."""
        if not self.is_side_by_side:
            return [f"{_ONE}: {self.reason}"]
        lines = [f"side by side, with {counted(self.jobs, 'job')} together:"]
        if self.places < len(self.groups):
            lines.insert(0, f"{self.places} of {len(self.groups)} groups at a time: {self.reason}")
        lines += [f"  {', then '.join(group)}" for group in self.groups]
        return lines


@dataclass(frozen=True, kw_only=True)
class _Limit:
    """A number of configs that can be built at the same time, and the reason for it."""

    places: int
    reason: str


def arrange(
    plans: Mapping[str, Outlook | Exception], *, one_by_one: bool, removes_trees: bool
) -> Arrangement:
    """Return the order in which configs are built; those that cannot be planned are left out."""
    planned: list[Outlook] = []
    unfinished: list[Outlook] = []
    for plan in plans.values():
        if isinstance(plan, Exception):
            continue
        planned.append(plan)
        if not plan.progress.is_done:
            unfinished.append(plan)
    working = unfinished or planned
    groups = _groups_of(planned)
    busy = _groups_of(working)
    jobs = min((outlook.estimate.jobs.count for outlook in working), default=1)
    limits = [_Limit(places=len(groups), reason="all share objects")]
    if len(busy) > 1:
        limits += [
            _Limit(places=len(busy), reason="the others exist"),
            _Limit(places=jobs, reason=counted(jobs, "job")),
            _memory_limit(working),
            _disk_limit(working, removes_trees=removes_trees),
        ]
    elif len(groups) > 1:
        limits.append(_Limit(places=1, reason="the others exist"))
    if one_by_one:
        limits.append(_Limit(places=1, reason="--one-by-one"))
    least = min(limits, key=lambda limit: limit.places)
    places = max(1, least.places)
    if places > 1:
        groups = _longest_first(groups, planned)
    return Arrangement(
        groups=groups,
        places=places,
        jobs=jobs,
        heavy_jobs=_fewest_heavy_jobs(working),
        starts_early=not removes_trees,  # else the disk may be full of the tree that is removed in a moment
        reason=least.reason,
    )


def _groups_of(outlooks: Sequence[Outlook]) -> Sequence[Sequence[str]]:
    """Return the groups; those with long compiles come first."""
    compiling: list[Config] = []
    alone: list[list[str]] = []
    for outlook in outlooks:
        config = outlook.options.config
        if outlook.progress.compiles_little:
            alone.append([config.name])
        else:
            compiling.append(config)
    return [*group_by_toolchain(compiling, {}), *alone]


def _longest_first(groups: Sequence[Sequence[str]], planned: Sequence[Outlook]) -> Sequence[Sequence[str]]:
    """Return the groups by their hours: a long one that starts last would run alone at the end."""
    hours = {outlook.options.config.name: outlook.estimate.hours for outlook in planned}
    return sorted(groups, key=lambda group: sum(hours[name] for name in group), reverse=True)


def _fewest_heavy_jobs(working: Sequence[Outlook]) -> int:
    """Return the smallest number of heavy jobs; 0 if no config has heavy objects."""
    numbers: list[int] = []
    for outlook in working:
        if outlook.estimate.heavy_jobs:
            numbers.append(outlook.estimate.heavy_jobs)
    return min(numbers, default=0)


def _memory_limit(working: Sequence[Outlook]) -> _Limit:
    """Return for how many configs the memory is enough, if each runs its largest compile."""
    free = measure().memory_free
    if working[0].options.memory:
        free = min(free, working[0].options.memory)
    largest = max(outlook.estimate.memory_per_job for outlook in working)
    reason = f"{size(free)} of memory free, {size(largest)} per compile"
    return _Limit(places=free // max(1, largest), reason=reason)


def _disk_limit(working: Sequence[Outlook], *, removes_trees: bool) -> _Limit:
    """Return for how many configs the disk is large enough; without a basis for its estimate, a config counts 0."""
    needs = sorted(map(_disk_need, working), reverse=True)
    free = disk_free(working[0].options.output)
    if not removes_trees:
        needs = [sum(needs)]  # the same whatever the order
    needed = 0
    for places, need in enumerate(needs):
        needed += need
        if needed > free:
            return _Limit(places=places, reason=f"{size(free)} of disk free, {size(needed)} needed")
    return _Limit(places=len(working), reason="disk")


def _disk_need(outlook: Outlook) -> int:
    """Return the bytes of disk that a config still needs."""
    pending = outlook.plan.environment.pending or Pending()
    return max(0, outlook.estimate.disk - size_of(outlook.options.state)) + pending.bytes
