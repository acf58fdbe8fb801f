"""The table of several configs before they are built: the work, download, disk and time of each, and of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from groundwork.text import Sign, counted, duration, size, table
from megabuild.providers.environment import Pending
from megabuild.run.arrangement import Arrangement
from megabuild.run.outlook import Outlook

_HEADS = ("config", "will", "download", "disk", "time")
_NUMBERS = frozenset({2, 3, 4})
_UNKNOWN = "unknown"
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, kw_only=True)
class _Need:
    """Figures of a config that is still to be built; None: unknown."""

    download: int | None = 0
    disk: int | None = 0  #: bytes at the peak
    kept: int = 0  #: bytes of these that stay after --remove-trees
    hours: float | None = 0.0

    def cells(self) -> list[str]:
        """Return the figures as text."""
        return [_text(self.download, size), _text(self.disk, size), _text(self.hours, _duration_of_hours)]


def overview_lines(plans: Mapping[str, Outlook | Exception], arrangement: Arrangement) -> list[str]:
    """Return a table of configs before they are built, with their sum; their order; each one's error without a plan."""
    rows: list[tuple[str, ...]] = []
    errors: list[str] = []
    needs: list[_Need] = []
    for name, plan in plans.items():
        if isinstance(plan, Exception):
            rows.append((name, "cannot be built", "", "", ""))
            errors += ["", f"{Sign.failed} {name}: {plan}"]
            continue
        count = _missing_packages(plan)
        need = _Need()
        work = "nothing: all exist"
        if count:
            need = _need(plan)
            work = f"build {counted(count, 'package')}"
        needs.append(need)
        rows.append((name, work, *need.cells()))
    whole = "all, one after the other"
    if arrangement.is_side_by_side:
        whole = "all, at most"  # the time: they share the jobs, and compile while others pack
    rows.append((whole, "", *_sum(needs).cells()))
    if len(needs) > 1:
        rows.append(("with --remove-trees", "", "", _text(_peak(needs, arrangement.places), size), ""))
    return [*table(_HEADS, rows, right=_NUMBERS), "", *arrangement.lines(), *errors]


def _missing_packages(outlook: Outlook) -> int:
    """Return the number of packages that are neither published nor in the store."""
    left = outlook.progress.when_fetched()
    count = len(left.missing)
    for task in left.missing_tasks:
        count += len(task.packages)
    return count


def _need(outlook: Outlook) -> _Need:
    """Return the figures of a plan. Downloads from a channel that is no folder here are known to its server only."""
    plan = outlook.plan
    estimate = outlook.estimate
    pending = plan.environment.pending or Pending()
    need = _Need(
        download=pending.download,
        disk=estimate.disk + pending.bytes,
        kept=estimate.packages + pending.bytes,
        hours=estimate.hours,
    )
    if any(channel.is_on_server for channel in plan.environment.channels):
        need = replace(need, download=None)
    if not estimate.basis:
        need = replace(need, disk=None, hours=None)
    return need


def _sum(needs: Sequence[_Need]) -> _Need:
    """Return the sums; a sum with an unknown part is unknown."""
    whole = _Need()
    for need in needs:
        whole = _Need(
            download=_plus(whole.download, need.download),
            disk=_plus(whole.disk, need.disk),
            hours=_plus(whole.hours, need.hours),
        )
    return whole


def _plus(one: _Number | None, other: _Number | None) -> _Number | None:
    if one is None or other is None:
        return None
    return one + other


def _text(value: _Number | None, text_of: Callable[[_Number], str]) -> str:
    if value is None:
        return _UNKNOWN
    return text_of(value)


def _duration_of_hours(hours: float) -> str:
    return duration(hours * 3600)


def _peak(needs: Sequence[_Need], places: int) -> int | None:
    """Return the largest disk space in use if each config's trees are removed before the next one is built.

    With several places, any configs may be built at the same time, after all others.
    """
    disks = [need.disk for need in needs if need.disk is not None]
    if len(disks) < len(needs):
        return None
    if places > 1:
        trees = sorted((disk - need.kept for need, disk in zip(needs, disks, strict=True)), reverse=True)
        return sum(need.kept for need in needs) + sum(trees[:places])
    peak = 0
    kept = 0
    for need, disk in zip(needs, disks, strict=True):
        peak = max(peak, kept + disk)
        kept += need.kept
    return peak
