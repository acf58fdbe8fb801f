"""The report: its JSON, with the provenance of every value, and its Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import structs

from groundwork import files
from groundwork.errors import UsageError
from groundwork.text import counted, plain
from pin_audit.cells import CellPart, cells
from pin_audit.facts import Column
from pin_audit.rows import AuditRow, Use
from pin_audit.statuses import Status
from pin_audit.table import Audit

FORMAT = "audit"
FORMAT_VERSION = 5
BEGIN = "<!-- audit:begin -->"
END = "<!-- audit:end -->"
_SETTLED = " and ".join(f"'{status.value}'" for status in reversed(Status) if status.settled)
_BETWEEN = re.compile(rf"(?<={BEGIN}\n)(?:.*\n)*?(?={END}$)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Report:
    """The tables of one or more packages, and when they were made: ISO 8601 in UTC."""

    made: str
    audits: tuple[Audit, ...]
    warnings: tuple[str, ...] = ()  #: about the cache, and names of written snapshots


@dataclass(frozen=True, kw_only=True)
class TableKind:
    """The heads of a table: of the rows' names, and of each column of facts."""

    names: str
    columns: Mapping[Column, str]
    prefix: str = ""  #: of the rows' names, left out in the table


DEPENDENCIES = TableKind(names="package", columns={column: column.value for column in Column})
ARCHITECTURES = TableKind(
    names="CUDA", columns={Column.UPSTREAM: "upstream", Column.RECIPE: "recipes"}, prefix="CUDA "
)


def to_document(report: Report) -> dict[str, object]:
    """Return the report's JSON without its format fields. A cell lists its facts as ``source/number``."""
    return {"made": report.made, "packages": [_package(audit) for audit in report.audits]}


def _package(audit: Audit) -> dict[str, object]:
    numbers: dict[int, str] = {}
    for outcome in audit.outcomes:
        for number, fact in enumerate(outcome.facts):
            numbers[id(fact)] = f"{outcome.source}/{number}"
    target = structs.asdict(audit.target)
    del target["index"], target["recipe"]  # internal to this repository
    return {
        **msgspec.to_builtins(target),
        "commit": audit.commit,
        "sources": msgspec.to_builtins(audit.outcomes, order="sorted"),
        "rows": [_row_document(row, numbers) for row in audit.rows],
        "archs": [_row_document(row, numbers) for row in audit.archs],
    }


def _row_document(row: AuditRow, numbers: Mapping[int, str]) -> dict[str, object]:
    """Return a row's JSON; `numbers` are the ``source/number`` of facts, by their identity."""
    cells: dict[str, list[str]] = {column.value: [] for column in Column}
    for fact in row.facts:
        cells[fact.column.value].append(numbers[id(fact)])
    document: dict[str, object] = {
        "name": row.name,
        "status": row.verdict.status.value,
        "sentence": row.verdict.sentence,
        "cells": cells,
    }
    if row.use is not None:
        document["use"] = row.use.value
    if row.verdict.todo:
        document["todo"] = row.verdict.todo
    return document


def markdown(report: Report, *, level: int = 2, lines: bool = True, every: bool = True) -> str:
    """Return the report as Markdown; `lines` keeps the line numbers of this repository's files.

    Unless `every`, the tables have only the rows that need a decision, the gravest first.
    """
    parts: list[str] = []
    for audit in report.audits:
        page = _Page(audit)
        parts += page.head(level, report.made)
        parts += page.tables(every)
        parts += page.findings(lines)
        parts += page.counts(every)
        parts += page.troubles()
        parts += page.links()
    return "\n\n".join(parts) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for row in rows:
        texts = [f" {text} |" if text else " |" for text in row]
        lines.append("|" + "".join(texts))
    return "\n".join(lines)


def bullets(texts: Iterable[str]) -> str:
    """Return a Markdown list."""
    return "\n".join(f"* {text}" for text in texts)


def insert(path: Path, text: str) -> bool:
    """Replace the text between the markers of a file; return whether the file changed.

    Raises UsageError: the file cannot be read or written, or does not have each marker exactly once, on its own line.
    """
    if not path.is_file():  # a device may be endless
        raise UsageError(f"{path}: not a file", f"pass a file with the lines {BEGIN} and {END}")
    try:
        content = path.read_bytes().decode("utf-8")
        old = content.replace("\r\n", "\n")
        between = _BETWEEN.search(old)
        markers = [line for line in old.split("\n") if line in (BEGIN, END)]
        if markers != [BEGIN, END] or between is None:
            raise UsageError(f"{path}: no markers for the table", f"add the lines {BEGIN} and {END}")
        stripped = text.strip("\n")
        new = f"\n{stripped}\n\n"
        if between[0] == new:
            return False
        replaced = _BETWEEN.sub(lambda _: new, old)
        if "\r\n" in content:
            replaced = replaced.replace("\n", "\r\n")
        files.write(path.resolve(), replaced)
    except (OSError, UnicodeDecodeError) as error:
        hint = f"pass a writable file with the lines {BEGIN} and {END}"
        raise UsageError(f"{path}: cannot be read or written: {error}", hint) from error
    return True


def escape(text: str, *, lines: bool = True) -> str:
    """Escape Markdown in a text, and remove line numbers unless `lines`."""
    if not lines:
        text = re.sub(r"(\.\w+):\d+", r"\1", text)
    return re.sub(r"([\\|*<\[\]`]|(?<!\w)_|_(?!\w))", r"\\\1", plain(text)).replace("\n", " ")


class _Page:
    """The Markdown of one audit, in paragraphs."""

    def __init__(self, audit: Audit) -> None:
        self.audit = audit
        self.listed = [row for row in audit.rows if not row.vendored_only or row.use is Use.LISTED]
        self.labels: dict[str, str] = {}  # of web pages that cells link to

    def head(self, level: int, made: str) -> Iterator[str]:
        target = self.audit.target
        yield f"{'#' * level} {escape(f'{target.package} {target.version}')}"
        upstream = "No source that names upstream"
        if target.tag:
            commit = f" ({self.audit.commit[:10]})" if self.audit.commit else ""
            upstream = f"Upstream's {target.tag}{commit}"
        yield escape(f"{upstream}. This table was made on {made[:10]}.")

    def tables(self, every: bool) -> Iterator[str]:
        for kind, rows in ((DEPENDENCIES, self.listed), (ARCHITECTURES, self.audit.archs)):
            chosen = rows if every else _undecided(rows)
            if chosen:
                heads = (kind.names, *kind.columns.values(), "status")
                yield table(heads, [self._line(row, kind) for row in chosen])

    def _line(self, row: AuditRow, kind: TableKind) -> list[str]:
        line = [escape(row.name.removeprefix(kind.prefix))]
        by_column = cells(row)
        for column in kind.columns:
            line.append("<br>".join(map(self._part, by_column[column])))
        status = row.verdict.status
        line.append(status.value if status.settled else f"**{status.value}**")
        return line

    def _part(self, part: CellPart) -> str:
        text = plain(part.text)
        if not re.fullmatch(r"[\w .,;:+-]*", text) or "_" in text:
            text = "`" + text.replace("|", "\\|").replace("`", "'") + "`"
        if part.url.startswith(("https://", "http://")):
            new_label = f"{self.audit.target.package}-{len(self.labels) + 1}"
            text = f"[{text}][{self.labels.setdefault(part.url, new_label)}]"
        return f"{text} {escape(part.remark)}".strip()

    def findings(self, lines: bool) -> Iterator[str]:
        texts = []
        for (_, text), names in self.audit.findings().items():
            texts.append(f"{escape(', '.join(names))}: {escape(text, lines=lines)}.")
        if texts:
            yield bullets(texts)

    def counts(self, every: bool) -> Iterator[str]:
        texts = []
        for status in Status:
            count = len(self.audit.with_status([status]))
            if count:
                texts.append(f"{count} {status.value}")
        yield f"{', '.join(texts) or 'nothing found'}."
        hidden = [row for row in (*self.listed, *self.audit.archs) if row.verdict.status.settled]
        if hidden and not every:
            yield f"{counted(len(hidden), 'row')} with status {_SETTLED} not shown: add --all."

    def troubles(self) -> Iterator[str]:
        troubles = self.audit.troubles()
        if troubles:
            yield "Not read, or only in part:"
            yield bullets(f"{source}: {escape(reason)}." for source, reason in troubles.items())

    def links(self) -> Iterator[str]:
        links = []
        for url, label in self.labels.items():
            quoted = url.replace(" ", "%20").replace("<", "%3C").replace(">", "%3E")
            links.append(f"[{label}]: {quoted}")
        if links:
            yield "\n".join(links)


def _undecided(rows: Iterable[AuditRow]) -> list[AuditRow]:
    """Return the rows that need a decision, the gravest first."""
    left = [row for row in rows if not row.verdict.status.settled]
    return sorted(left, key=lambda row: row.verdict.gravity)
