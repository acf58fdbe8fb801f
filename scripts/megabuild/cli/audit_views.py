"""The audit's table on a terminal, and what changed since another one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from megabuild.audit.claims import Row, Status
from megabuild.audit.report.cells import Part, cells, sorted_out
from megabuild.audit.report.jsonfile import Comparison, Report
from megabuild.audit.table import Audit
from megabuild.cli.text import Signs
from megabuild.network.cache import age
from megabuild.wording import counted

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
    return out.is_terminal and not environment.get("TERM", "").startswith(_LINKLESS)


def report_view(report: Report, out: Console, *, links: bool) -> Group:
    """Return a report for a console.

    Parameters
    ----------
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


def changes_view(found: Comparison, since: str) -> Group:
    """Return what changed since a report, one line per cell, and what could not be compared."""
    table = _table(("package", 24), ("column", 12), (since[:10], 0), ("now", 0))
    for change in found.changes:
        table.add_row(change.row, change.column, change.before or "-", change.after or "-")
    nothing = "nothing that both have read changed" if found.unread or found.values else "nothing changed"
    shown = table if found.changes else Text(f"{nothing} since {since[:10]}")
    left = [f"{name} is in one of the two reports only" for name in found.lonely]
    if found.unread:
        left.append(f"not compared, since one of the two has not read them: {', '.join(found.unread)}")
    if found.values:
        left.append(
            f"not compared, since one of the two has not read them: {counted(found.values, 'single value')}"
        )
    return Group(shown, *map(Text, left))


def _audit(audit: Audit, report: Report, signs: Signs, links: bool) -> Iterable[RenderableType]:
    target = audit.target
    commit = f" ({audit.commit[:10]})" if audit.commit else ""
    head = Text(f"{target.package} {target.version}", "bold")
    yield head.append(f"  upstream's {target.tag}{commit}, as of {report.day.isoformat()}", Style(bold=False))
    compared, silent, vendored = sorted_out(audit.rows)
    if compared:
        table = _table(
            ("package", _NAME_WIDTH), ("upstream", 0), ("recipe", 0), ("conda-forge", 0), ("status", -17)
        )
        for row in compared:
            table.add_row(row.name, *_cells(row, links), _status(row.status, signs))
        yield _spaced(table)
    if silent:
        names = ", ".join(row.name for row in silent)
        yield _spaced(Text(f"without a version, here as elsewhere: {names}", "dim"))
    if vendored:
        table = _table(("vendored upstream", 24), ("upstream", 0), ("in this build", 0), ("conda-forge", 0))
        for row in vendored:
            upstream, _, conda_forge = _cells(row, links)
            table.add_row(
                row.name, upstream, _USES[row.use] + (f" ({row.why})" if row.why else ""), conda_forge
            )
        yield _spaced(table)
    if audit.archs:
        table = _table(("CUDA", 5), ("upstream", 0), ("recipes", 0))
        for row in audit.archs:
            table.add_row(row.name.removeprefix("CUDA "), *_cells(row, links)[:2])
        yield _spaced(table)
    yield from _sentences(audit, signs)
    yield Text(audit.counts())
    yield from _sources(audit, signs)


def _spaced(shown: RenderableType) -> Padding:
    return Padding(shown, (0, 0, 1, 0), expand=False)


def _sentences(audit: Audit, signs: Signs) -> Iterable[RenderableType]:
    grid = _grid()
    for (status, sentence), names in audit.told().items():
        mark = signs.failed if status is Status.CONFLICT else signs.warning
        head = ", ".join(names)
        if len(head) > _NAMES_WIDTH:
            head, sentence = f"{len(names)} rows", f"{sentence}: {head}"
        grid.add_row(Text(f"{mark} {head}", _STYLES[status]), Text(sentence))
    if grid.row_count:
        yield _spaced(grid)


def _sources(audit: Audit, signs: Signs) -> Iterable[RenderableType]:
    """Say how old what came from the cache is, and what could not be read."""
    read = []
    for outcome in audit.outcomes:
        oldest = max((_age(one.where.fetched) for one in outcome.facts), default=0.0)
        if oldest > _FRESH:
            read.append(f"{outcome.source} cached {_for_people(oldest)} ago")
    if read:
        yield Text(f"read: {'; '.join(read)}", "dim")
    grid = _grid()
    for source, reason in audit.unread().items():
        grid.add_row(Text(f"{signs.warning} {source}", "magenta"), Text(reason))
    if grid.row_count:
        yield Text("not read, or not wholly:")
        yield grid


def _grid() -> Table:
    """Make a list of heads with something to say of each."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


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


def _table(*columns: tuple[str, int]) -> Table:
    """Make a table; a column is as wide as given at most, exactly so (below 0), or shares what is left (0)."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for name, width in columns:
        if width < 0:
            table.add_column(name, no_wrap=True, min_width=-width)
        elif width:
            table.add_column(name, overflow="fold", min_width=min(width, _NAME_WIDTH), max_width=width)
        else:
            table.add_column(name, overflow="fold", min_width=8)
    return table


def _cells(row: Row, links: bool) -> list[Text]:
    """Return what upstream, the recipe and conda-forge say."""
    return [Text("\n").join(_part(part, links) for part in parts) for parts in cells(row).values()]


def _part(part: Part, links: bool) -> Text:
    linked = links and part.url.startswith(("https://", "http://"))
    line = Text().append(part.text, Style(link=part.url) if linked else None)
    return line.append(f" {part.remark}", "dim") if part.remark else line


def _status(status: Status, signs: Signs) -> Text:
    mark = {Status.CONFLICT: signs.failed, Status.IN_STEP: signs.done}.get(status, "")
    return Text(f"{mark} {status.value}".strip(), _STYLES[status])
