"""The table of several configs before they are built: what each will do and take, and which cannot be built."""

from __future__ import annotations

from collections.abc import Mapping

from groundwork.errors import MegabuildError
from groundwork.text import Sign, counted, duration, fold, size, table, wrapped
from megabuild.plan import store_lookup
from megabuild.plan.plan import Plan
from megabuild.providers.environment import Pending

_HEADS = ("config", "will", "download", "disk", "time")
CANNOT = "cannot be built"


def overview_lines(plans: Mapping[str, Plan | Exception]) -> list[str]:
    """Return a row per config, their sum, and each error with the configs that it stops.

    `plans`: by config, or the exception that ended planning; its report follows if it is a bug.
    """
    rows, reasons = [], dict[str, list[str]]()
    remedies: dict[str, str] = {}
    downloads, disk, hours = 0, 0, 0.0
    for name, plan in plans.items():
        if isinstance(plan, Exception):
            rows.append((name, CANNOT if isinstance(plan, MegabuildError) else "?", "", "", ""))
            if isinstance(plan, MegabuildError):
                reason = plan.message.removeprefix(f"{name}: ")
                reasons.setdefault(reason, []).append(name)
                remedies.setdefault(reason, plan.remedy)
            continue
        pending = plan.environment.pending or Pending()
        needed = plan.estimate.disk + pending.bytes
        rows.append((name, _work(plan), _size(pending.download), _size(needed), _time(plan.estimate.hours)))
        downloads, disk, hours = downloads + pending.download, disk + needed, hours + plan.estimate.hours
    rows.append(("all, one after the other", "", _size(downloads), _size(disk), _time(hours)))
    lines = table(_HEADS, rows, right=frozenset({2, 3, 4}))
    for reason, names in reasons.items():
        lines += ["", *wrapped(f"{Sign.failed} {', '.join(names)}: {reason}")]
        lines += fold(f"hint: {remedies[reason]}", 80) if remedies[reason] else []
    return lines


def _work(plan: Plan) -> str:
    left = store_lookup.when_fetched(plan, plan.stored)
    count = len(left.missing) + sum(len(task.packages) for task in left.missing_tasks)
    fetched = len(plan.stored.packages)
    if not count:
        return f"fetch {counted(fetched, 'package')}" if fetched else "do nothing: all exist"
    return f"{'build' if plan.compiles_torch else 'unpack'} {counted(count, 'package')}"


def _size(octets: int) -> str:
    return size(octets) if octets else Sign.dash


def _time(hours: float) -> str:
    return duration(hours * 3600) if hours else Sign.dash
