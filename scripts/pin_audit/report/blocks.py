"""The table as headings, sentences, grids and remarks: what Markdown and terminals show, each in its own way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from groundwork.network.cache import age
from groundwork.wording import counted
from pin_audit.advice import DECISIONS
from pin_audit.claims import AuditRow, Status
from pin_audit.report.cells import CellPart, cells, partition_rows, readings
from pin_audit.report.jsonfile import Comparison, Report
from pin_audit.table import Audit

_USES = {
    "listed": "no recipe says",
    "vendored": "compiled in",
    "system": "the environment's instead",
    "unused": "not compiled",
}
_NAMES_WIDTH = 24
_FRESH = 90.0  # seconds; what is younger was fetched by this very run
Cell = str | Status | Sequence[CellPart]


class Heading(NamedTuple):
    """A package, and a remark on its table."""

    text: str
    remark: str


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table; every row has as many cells as there are heads."""

    heads: tuple[str, ...]
    rows: list[tuple[Cell, ...]]


class Remark(NamedTuple):
    """A remark on a row or a source."""

    about: str
    text: str
    grave: bool = False


Block = Heading | str | Grid | list[Remark]


def report_blocks(report: Report, *, ages: bool, folded: bool = False) -> Iterator[Block]:
    """Yield the blocks of a report; with `ages`, also how old cached data are.

    `folded` leaves out the rows that need no decision.
    """
    for audit in report.audits:
        yield from filter(None, _audit(audit, report, ages=ages, folded=folded))


def change_blocks(found: Comparison, since: str) -> Iterator[Block]:
    """Yield what changed since a report, one row per cell, and what could not be compared."""
    rows: list[tuple[Cell, ...]] = [
        (one.row, one.column, one.before or "-", one.after or "-") for one in found.changes
    ]
    nothing = "nothing that both have read changed" if found.unread or found.values else "nothing changed"
    heads = ("package", "column", since[:10], "now")
    yield Grid(heads=heads, rows=rows) if rows else f"{nothing} since {since[:10]}"
    for name in found.unmatched:
        yield f"{name} is in one of the two reports only"
    values = [counted(found.values, "single value")] if found.values else []
    for unread in filter(None, (", ".join(found.unread), *values)):
        yield f"not compared, since one of the two has not read them: {unread}"


def _audit(audit: Audit, report: Report, *, ages: bool, folded: bool) -> Iterator[Block]:
    target = audit.target
    commit = f" ({audit.commit[:10]})" if audit.commit else ""
    yield Heading(
        f"{target.package} {target.version}",
        f"upstream's {target.tag}{commit}, {_days(audit, report)}",
    )
    compared, silent, vendored = partition_rows(audit.rows)
    archs: Sequence[AuditRow] = audit.archs
    if folded:
        compared = [row for row in audit.rows if row.status in DECISIONS]
        archs = [row for row in archs if row.status in DECISIONS]
        silent, vendored = [], []
        unknown = audit.with_status([Status.UNKNOWN])
        left = len(audit.rows) + len(audit.archs) - len(compared) - len(archs) - len(unknown)
    if compared:
        yield Grid(
            heads=("package", "upstream", "recipe", "conda-forge", "status"),
            rows=[(row.name, *cells(row).values(), row.status) for row in compared],
        )
    if silent:
        yield f"Without a version, here as elsewhere: {', '.join(row.name for row in silent)}"
    if vendored:
        yield Grid(
            heads=("vendored upstream", "upstream", "in this build", "conda-forge"),
            rows=[_vendored(row) for row in vendored],
        )
    if archs:
        yield Grid(
            heads=("CUDA", "upstream", "recipes", "status"),
            rows=[
                (row.name.removeprefix("CUDA "), cells(row)["upstream"], cells(row)["recipe"], row.status)
                for row in archs
            ],
        )
    found = audit.findings().items()
    yield [_remark(*one, names) for one, names in found if not (folded and one[0] is Status.UNKNOWN)]
    if folded and unknown:
        yield f"{counted(len(unknown), 'row')} could not be judged (--all-rows says why): {', '.join(unknown)}"
    yield audit.counts()
    if folded and left:
        yield f"{counted(left, 'row')} that {'needs' if left == 1 else 'need'} no decision: --all-rows shows all"
    read = readings((*audit.rows, *audit.archs))
    yield ", ".join(f"{number} {what}" for what, number in read.items() if number) + " of the table's cells"
    if ages:
        yield _cached(audit)
    if unread := [Remark(source, reason) for source, reason in audit.unread().items()]:
        yield "Not read, or not wholly:"
        yield unread


def _days(audit: Audit, report: Report) -> str:
    """Return of which day the report is, and its look at conda-forge's pins where a snapshot stands in for them."""
    days = [
        fact.where.fetched[:10]
        for outcome in audit.outcomes
        if outcome.source == "pinning" and outcome.snapshot
        for fact in outcome.facts
    ]
    pins = f", conda-forge's pins of {max(days)}" if days else ""
    return f"made {report.day.isoformat()}{pins}"


def _vendored(row: AuditRow) -> tuple[Cell, ...]:
    use = _USES[row.use] + (f" ({row.why})" if row.why else "")
    return (row.name, cells(row)["upstream"], use, cells(row)["conda-forge"])


def _remark(status: Status, text: str, names: Sequence[str]) -> Remark:
    about = ", ".join(names)
    if len(about) > _NAMES_WIDTH:
        about, text = counted(len(names), "row"), f"{text}: {about}"
    return Remark(about, text, grave=status is Status.CONFLICT)


def _cached(audit: Audit) -> str:
    """Return how old the cached data are."""
    read = []
    for outcome in (one for one in audit.outcomes if not one.snapshot):
        oldest = max((_age(one.where.fetched) for one in outcome.facts), default=0.0)
        if oldest > _FRESH:
            read.append(f"{outcome.source} cached {_for_people(oldest)} ago")
    return f"read: {'; '.join(read)}" if read else ""


def _age(fetched: str) -> float:
    try:
        return age(fetched)
    except ValueError:  # a local file's
        return 0.0


def _for_people(seconds: float) -> str:
    for length, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.0f} {name}"
    return f"{seconds:.0f} s"
