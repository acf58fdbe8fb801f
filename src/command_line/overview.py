"""The table of several configs before they are built: the work, download, disk and time of each, and of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from groundwork.text import Sign, counted, duration, size, table
from megabuild.providers.environment import Pending
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


def overview_lines(plans: Mapping[str, Outlook | Exception]) -> list[str]:
    """Return a table of configs before they are built, with their sum, and the error of each that cannot be built."""
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
    rows.append(("all, one after the other", "", *_sum(needs).cells()))
    if len(needs) > 1:
        rows.append(("with --remove-trees", "", "", _text(_peak(needs), size), ""))
    return [*table(_HEADS, rows, right=_NUMBERS), *errors]


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
    if any(channel.folder is None for channel in plan.environment.channels):
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


def _peak(needs: Sequence[_Need]) -> int | None:
    """Return the largest disk space in use if each config's trees are removed before the next one is built."""
    peak = 0
    kept = 0
    for need in needs:
        if need.disk is None:
            return None
        peak = max(peak, kept + need.disk)
        kept += need.kept
    return peak
