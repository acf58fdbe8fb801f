"""`--machines`: what several machines would make of plans, as a table and as JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from groundwork.errors import UsageError
from groundwork.resources.machine import measure
from groundwork.result import Result
from groundwork.text import duration, table, wrapped
from groundwork.wording import counted
from megabuild.forecast import machines as forecast
from megabuild.forecast.machines import Machines, Way, Work, ways
from megabuild.plan import expected, stored
from megabuild.plan.estimate import staging_bytes
from megabuild.plan.plan import Plan

#: How often PyTorch is released, roughly, patch releases included.
_RELEASES_A_MONTH = 2
_MOST = 1000


def machines(text: str) -> Machines:
    """Read ``4``, of this machine's cores, or ``4x16``.

    Raises UsageError: It is neither.
    """
    found = re.fullmatch(r"(\d{1,4})(?:x(\d{1,4}))?", text)
    count, cores = (int(found[1]), int(found[2] or measure().cores)) if found else (0, 0)
    if not (0 < count <= _MOST and 0 < cores <= _MOST):
        raise UsageError(
            f"--machines is '{text}'",
            f"give machines, or machines and the cores of each: 4, 4x16 (1 to {_MOST})",
        )
    return Machines(count=count, cores=cores)


def with_advice(result: Result, plans: Sequence[Plan], those: Machines) -> Result:
    """Return the result of ``--plan`` with what the machines would make of it."""
    works = [_work(plan) for plan in plans]
    works = [work for work in works if work.outline.packages or work.outline.extensions]
    found = ways(works, those) if works else []
    document = result.document if isinstance(result.document, dict) else {}
    return replace(
        result,
        document={**document, "machines": _document(found, those)},
        lines=[*result.lines, "", *lines(found, those)],
    )


def lines(found: Sequence[Way], those: Machines) -> list[str]:
    """Return the table."""
    if not found:
        return ["more machines would have nothing to do"]
    what = f"{counted(those.count, 'machine')} of {counted(those.cores, 'core')}"
    rows = [(way.name, *map(duration, (way.seconds, way.machine_seconds, _month(way)))) for way in found]
    return [
        *table((what, "time", "machines", "a month"), rows, right=frozenset({1, 2, 3})),
        *wrapped(
            f"(simulated; machines: time of all that are used; a month: with {_RELEASES_A_MONTH} releases; "
            "docs/machines.md says when to use what)"
        ),
    ]


def _document(found: Sequence[Way], those: Machines) -> dict[str, Any]:
    return {
        "count": those.count,
        "cores": those.cores,
        "ways": [
            {
                "name": way.name,
                "hours": round(way.seconds / 3600, 3),
                "machine_hours": round(way.machine_seconds / 3600, 3),
                "machine_hours_a_month": round(_month(way) / 3600, 3),
            }
            for way in found
        ],
        "assumed": {
            "client_share": forecast.CLIENT_SHARE,
            "object_bytes": forecast.OBJECT_BYTES,
            "bits_per_second": forecast.BITS_PER_SECOND,
            "releases_a_month": _RELEASES_A_MONTH,
        },
    }


def _month(way: Way) -> float:
    return _RELEASES_A_MONTH * way.machine_seconds


def _work(plan: Plan) -> Work:
    left = stored.when_fetched(plan)
    kind = expected.kind_of(plan)
    return Work(
        outline=expected.outline(left),
        known=plan.known,
        tree=staging_bytes(kind) if kind else 0,
    )
