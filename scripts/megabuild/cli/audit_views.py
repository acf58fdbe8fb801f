"""The audit's table on a terminal, and what changed since another one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from megabuild.audit.archs import ArchRow, recipes_in_words
from megabuild.audit.case import Status
from megabuild.audit.changes import Change
from megabuild.audit.report.cells import (
    Part,
    conda_forge,
    recipe,
    recipe_archs,
    says_nothing,
    upstream,
    upstream_archs,
)
from megabuild.audit.report.jsonfile import Report
from megabuild.audit.rows import Audit, Row, counts, told, unread
from megabuild.cli.text import Signs

WIDTH = 100  # where nobody says how wide it may be
_STYLES = {
    Status.CONFLICT: "bold red",
    Status.OLDER: "yellow",
    Status.NEWER: "yellow",
    Status.MISSING: "yellow",
    Status.UNKNOWN: "magenta",
    Status.UNPINNED: "dim",
    Status.IN_STEP: "green",
}
_USES = {"vendored": "compiled in", "system": "environment's", "unused": "not compiled"}
_NAME_WIDTH = 17
_NAMES_WIDTH = 24
_FRESH = 90.0  # seconds; what is younger was fetched by this very run
#: Terminals that print the sequences of a link, or drop the text around them.
_LINKLESS = ("dumb", "linux", "screen", "vt100")


def console(environment: Mapping[str, str] = os.environ) -> Console:
    """Return the console for standard output: as wide as the terminal, 100 columns where there is none."""
    if reconfigure := getattr(sys.stdout, "reconfigure", None):
        reconfigure(errors="replace")  # other people's values in a stream that may be ASCII
    probe = Console()
    width = None if probe.is_terminal or environment.get("COLUMNS") else WIDTH
    return Console(width=width, highlight=False, emoji=False, markup=False, soft_wrap=False)


def links_shown(out: Console, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether links may be sent to a console."""
    term = environment.get("TERM", "")
    return out.is_terminal and not term.startswith(_LINKLESS)


def report_view(report: Report, out: Console, *, links: bool) -> Group:
    """Return a report for a console.

    Parameters
    ----------
    report:
        What was found.
    out:
        Where it is shown: its encoding decides about signs.
    links:
        Whether values are links to where they were read.
    """
    signs = Signs.of(out.file)
    parts: list[RenderableType] = []
    for audit in report.audits:
        parts += [*_audit(audit, report, signs, links), Text("")]
    return Group(*parts[:-1])


def changes_view(found: Sequence[Change], lonely: Sequence[str], since: str) -> Group:
    """Return what changed, one line per cell."""
    parts: list[RenderableType] = []
    if found:
        table = _table(("package", 24), ("column", 12), (f"{since[:10]}", 0), ("now", 0))
        for change in found:
            name = change.row if change.row == change.package else f"{change.row}"
            table.add_row(name, change.column, change.before or "-", change.after or "-")
        parts.append(table)
    else:
        parts.append(Text(f"nothing changed since {since[:10]}"))
    parts += [Text(f"{name} is in one of the two reports only") for name in lonely]
    return Group(*parts)


def _audit(audit: Audit, report: Report, signs: Signs, links: bool) -> Iterable[RenderableType]:
    target = audit.target
    commit = f" ({audit.commit[:10]})" if audit.commit else ""
    head = Text(f"{target.package} {target.version}", "bold")
    yield head.append(f"  upstream's {target.tag}{commit}, as of {report.day.isoformat()}", Style(bold=False))
    rows = [row for row in audit.rows if not row.vendored_only]
    compared = [row for row in rows if not says_nothing(row)]
    if compared:
        yield _spaced(_dependencies(compared, signs, links))
    if len(rows) > len(compared):
        silent = ", ".join(row.name for row in rows if says_nothing(row))
        yield _spaced(Text(f"without a version, here as elsewhere: {silent}", "dim"))
    vendored = [row for row in audit.rows if row.vendored_only]
    if vendored:
        yield _spaced(_vendored(vendored, links))
    if audit.archs:
        yield _spaced(_archs(audit.archs, links))
    yield from _sentences(audit, signs)
    yield Text(counts(audit))
    yield from _sources(audit, signs)


def _spaced(shown: RenderableType) -> Padding:
    return Padding(shown, (0, 0, 1, 0), expand=False)


def _dependencies(rows: Sequence[Row], signs: Signs, links: bool) -> Table:
    table = _table(
        ("package", _NAME_WIDTH), ("upstream", 0), ("recipe", 0), ("conda-forge", 0), ("status", -17)
    )
    for row in rows:
        table.add_row(
            row.name,
            _cell(upstream(row), links),
            _cell(recipe(row), links),
            _cell(conda_forge(row), links),
            _status(row.status, signs),
        )
    return table


def _vendored(rows: Sequence[Row], links: bool) -> Table:
    table = _table(("vendored upstream", 24), ("upstream", 0), ("in this build", 0), ("conda-forge", 0))
    for row in rows:
        use = _USES[row.use] + (f" ({row.why})" if row.why else "")
        table.add_row(row.name, _cell(upstream(row), links), use, _cell(conda_forge(row), links))
    return table


def _archs(rows: Sequence[ArchRow], links: bool) -> Table:
    table = _table(("CUDA", 5), ("upstream", 0), ("recipes", 0))
    for row in rows:
        ours = Text("\n").join(
            Text(archs).append(f" ({recipes_in_words(names, row)})", "dim")
            for archs, names in recipe_archs(row).items()
        )
        table.add_row(row.cuda, _cell(upstream_archs(row), links), ours)
    return table


def _sentences(audit: Audit, signs: Signs) -> Iterable[RenderableType]:
    grid = _grid()
    for (status, sentence), names in told(audit).items():
        mark = signs.failed if status is Status.CONFLICT else signs.warning
        head = ", ".join(names)
        if len(head) > _NAMES_WIDTH:
            head, sentence = f"{len(names)} rows", f"{sentence}: {head}"
        grid.add_row(Text(f"{mark} {head}", _STYLES[status]), Text(sentence))
    if grid.row_count:
        yield _spaced(grid)


def _grid() -> Table:
    """Make a list of heads with something to say of each."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


def _sources(audit: Audit, signs: Signs) -> Iterable[RenderableType]:
    """Say how old what came from the cache is, and what could not be read."""
    now = datetime.now(timezone.utc)
    read = []
    for outcome in audit.outcomes:
        ages = [age for one in outcome.facts if (age := _age(one.where.fetched, now)) is not None]
        if (oldest := max(ages, default=0.0)) > _FRESH:
            read.append(f"{outcome.source} cached {_for_people(oldest)} ago")
    if read:
        yield Text(f"read: {'; '.join(read)}", "dim")
    grid = _grid()
    for source, reason in unread(audit).items():
        grid.add_row(Text(f"{signs.warning} {source}", "magenta"), Text(reason))
    if grid.row_count:
        yield Text("not read, or not wholly:")
        yield grid


def _age(fetched: str, now: datetime) -> float | None:
    try:
        then = datetime.fromisoformat(fetched.replace("Z", "+00:00"))
        return (now - then).total_seconds() if then.tzinfo else None
    except ValueError:
        return None


def _for_people(seconds: float) -> str:
    for length, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.0f} {name}"
    return f"{seconds:.0f} s"


def _table(*columns: tuple[str, int]) -> Table:
    """Make a table; a column is as wide as given at most, exactly so (below 0), or shares what is left (0)."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for name, width in columns:
        if width < 0:
            table.add_column(name, no_wrap=True, min_width=-width)
        elif width:
            table.add_column(name, overflow="fold", min_width=min(width, _NAME_WIDTH), max_width=width)
        else:
            table.add_column(name, overflow="fold", min_width=8, ratio=None)
    return table


def _cell(parts: Sequence[Part], links: bool) -> Text:
    lines = []
    for part in parts:
        linked = links and part.url.startswith(("https://", "http://"))
        line = Text().append(part.text, Style(link=part.url) if linked else None)
        lines.append(line.append(f" {part.remark}", "dim") if part.note else line)
    return Text("\n").join(lines)


def _status(status: Status, signs: Signs) -> Text:
    mark = {Status.CONFLICT: signs.failed, Status.IN_STEP: signs.done}.get(status, "")
    return Text(f"{mark} {status.value}".strip(), _STYLES[status])
