"""The table as Markdown: sorted and without line numbers of this repository, so that it changes when a value does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from groundwork.errors import UsageError
from groundwork.network.cache import age
from groundwork.text import counted
from pin_audit.cells import CellPart, cells, count_cells, has_no_version
from pin_audit.constraints import AuditRow, Status
from pin_audit.report_file import Comparison, Report, write
from pin_audit.suggestions import DECISIONS
from pin_audit.table import Audit

BEGIN, END = "<!-- audit:begin -->", "<!-- audit:end -->"
_BETWEEN = re.compile(rf"(?<={BEGIN}\n)(?:.*\n)*?(?={END}$)", re.MULTILINE)
_FRESH = 90.0  # seconds; what is younger was fetched by this very run
Cell = Any  #: a text, a status, or the parts of a cell


def markdown(report: Report, *, level: int = 2, folded: bool = False, separator: str = "<br>") -> str:
    """Return a report with headings of some level; `folded` leaves out the rows that need no decision."""
    parts = [part for audit in report.audits for part in _audit(audit, report, level, folded, separator)]
    return "\n\n".join(filter(None, parts)) + "\n"


def changes_markdown(found: Comparison, since: str) -> str:
    """Return the cells that changed since a report, and what could not be compared."""
    heads = ("package", "column", since[:10], "now")
    parts = [table(heads, found.changes) if found.changes else f"Nothing changed since {since[:10]}."]
    parts += [f"{name} is in one of the two reports only." for name in found.unmatched]
    if found.unread:
        listed = escaped(", ".join(found.unread))
        parts.append(f"Not compared, since one of the two has not read them: {listed}.")
    return "\n\n".join(parts) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a grid of plain texts."""
    return _grid(heads, ([escaped(text, lines=True) for text in row] for row in rows))


def insert(path: Path, text: str) -> bool:
    """Replace the text between the markers of a file; returns whether that changed it.

    Raises UsageError: The file cannot be read or written, or does not have each marker once, alone on its line.
    """
    try:
        content = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}", "name a file with the markers") from error
    plain = content.replace("\r\n", "\n")
    between = _BETWEEN.search(plain)
    if [line for line in plain.split("\n") if line in (BEGIN, END)] != [BEGIN, END] or between is None:
        raise UsageError(
            f"{path} does not have the markers of the table", f"put lines with {BEGIN} and {END} there"
        )
    lines = "\n".join(["", *text.strip("\n").split("\n"), "", ""])
    if between[0] == lines:
        return False
    end_of_line = "\r\n" if "\r\n" in content else "\n"
    write(_BETWEEN.sub(lambda _: lines, plain).replace("\n", end_of_line), path)
    return True


def escaped(text: str, *, lines: bool = False) -> str:
    """Keep text from being markup, and leave out line numbers unless `lines`."""
    text = text if lines else re.sub(r"(\.\w+):\d+", r"\1", text)
    return re.sub(r"([\\|*<\[\]`]|(?<!\w)_|_(?!\w))", r"\\\1", text).replace("\n", " ")


def _audit(audit: Audit, report: Report, level: int, folded: bool, separator: str) -> Iterable[str]:
    target, labels = audit.target, dict[str, str]()

    def shown(cell: Cell) -> str:
        if isinstance(cell, Status):
            return cell.value if cell in (Status.IN_STEP, Status.UNPINNED) else f"**{cell.value}**"
        if isinstance(cell, str):
            return escaped(cell)
        return separator.join(_part(part, labels, target.package) for part in cell)

    commit = f" ({audit.commit[:10]})" if audit.commit else ""
    yield f"{'#' * level} {escaped(f'{target.package} {target.version}')}"
    yield escaped(f"Upstream's {target.tag}{commit}, {_days(audit, report)}.")
    rows = [row for row in audit.rows if not row.vendored_only or row.use == "listed"]
    silent = [row for row in rows if has_no_version(row)]
    chosen = [row for row in rows if row not in silent]
    archs: Sequence[AuditRow] = audit.archs
    if folded:
        chosen, archs = ([row for row in some if row.status in DECISIONS] for some in (audit.rows, archs))
        silent = []
    if chosen:
        heads = ("package", "upstream", "recipe", "conda-forge", "status")
        yield _grid(heads, (map(shown, (row.name, *cells(row).values(), row.status)) for row in chosen))
    if silent:
        yield f"Without a version, here as elsewhere: {escaped(', '.join(row.name for row in silent))}."
    if archs:
        texts = (
            (row.name.removeprefix("CUDA "), cells(row)["upstream"], cells(row)["recipe"], row.status)
            for row in archs
        )
        yield _grid(("CUDA", "upstream", "recipes", "status"), (map(shown, one) for one in texts))
    found = audit.findings().items()
    yield "\n".join(
        f"* {escaped(', '.join(about))}: {escaped(text, lines=folded)}."
        for (status, text), about in found
        if not (folded and status is Status.UNKNOWN)
    )
    unknown = audit.with_status([Status.UNKNOWN])
    if folded and unknown:
        yield f"{counted(len(unknown), 'row')} could not be judged, --markdown says why: " + escaped(
            f"{', '.join(unknown)}."
        )
    left = len(audit.rows) + len(audit.archs) - len(chosen) - len(archs) - len(unknown)
    more = f"; {counted(left, 'row')} without a decision: --markdown, --json" if folded and left else ""
    yield f"{audit.counts()}{more}."
    counts = count_cells((*audit.rows, *audit.archs))
    yield (
        ", ".join(f"{number} {what}" for what, number in counts.items() if number) + " of the table's cells."
    )
    yield _cached(audit) if folded else ""
    if unread := audit.unread():
        yield "Not read, or not wholly:"
        yield "\n".join(f"* {source}: {escaped(reason)}." for source, reason in unread.items())
    yield "\n".join(
        f"[{label}]: {url.replace(' ', '%20').replace('<', '%3C').replace('>', '%3E')}"
        for url, label in labels.items()
    )


def _grid(heads: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    lines += ["|" + "".join(f" {text} |" if text else " |" for text in row) for row in rows]
    return "\n".join(lines)


def _part(part: CellPart, labels: dict[str, str], package: str) -> str:
    plain = re.fullmatch(r"[\w .,;:+-]*", part.text) and "_" not in part.text
    text = part.text if plain else "`" + part.text.replace("|", "\\|").replace("`", "'") + "`"
    if part.url.startswith(("https://", "http://")):
        text = f"[{text}][{labels.setdefault(part.url, f'{package}-{len(labels) + 1}')}]"
    return f"{text} {escaped(part.remark)}".strip()


def _days(audit: Audit, report: Report) -> str:
    """Return of which day the report is, and its look at conda-forge's pins where a snapshot stands in for them."""
    pinnings = (outcome for outcome in audit.outcomes if outcome.source == "pinning" and outcome.snapshot)
    days = [fact.where.fetched[:10] for outcome in pinnings for fact in outcome.facts]
    pins = f", conda-forge's pins of {max(days)}" if days else ""
    return f"made {report.made[:10]}{pins}"


def _cached(audit: Audit) -> str:
    """Return how old the cached data are."""
    read = []
    for outcome in (outcome for outcome in audit.outcomes if not outcome.snapshot):
        fetched = [fact.where.fetched for fact in outcome.facts if "T" in fact.where.fetched]
        oldest = max(map(age, fetched), default=0.0)
        if oldest > _FRESH:
            read.append(f"{outcome.source} cached {oldest / 3600:.1f} h ago")
    return f"Read: {'; '.join(read)}." if read else ""
