"""The report: its JSON, with the provenance of every value, and its Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import msgspec
from msgspec import structs

from groundwork import files
from groundwork.errors import UsageError
from groundwork.text import counted, plain
from pin_audit.cells import CellPart, cells
from pin_audit.facts import Column
from pin_audit.rows import AuditRow, Status
from pin_audit.table import Audit

FORMAT, FORMAT_VERSION = "audit", 5
BEGIN, END = "<!-- audit:begin -->", "<!-- audit:end -->"
#: Statuses of rows that need no decision.
_SETTLED = (Status.IN_STEP, Status.UNPINNED)
_BETWEEN = re.compile(rf"(?<={BEGIN}\n)(?:.*\n)*?(?={END}$)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Report:
    """The tables of one or more packages, and when they were made: ISO 8601 in UTC."""

    made: str
    audits: tuple[Audit, ...]
    warnings: tuple[str, ...] = ()  #: about the cache, and names of written snapshots


def to_document(report: Report) -> dict[str, object]:
    """Return the report's JSON without its format fields. A cell lists its facts as ``source/number``."""
    return {"made": report.made, "packages": [_package(audit) for audit in report.audits]}


def _package(audit: Audit) -> dict[str, object]:
    places = {
        id(fact): f"{outcome.source}/{number}"
        for outcome in audit.outcomes
        for number, fact in enumerate(outcome.facts)
    }

    def row_document(row: AuditRow) -> dict[str, object]:
        cells = {
            column: [places[id(fact)] for fact in row.facts if fact.column == column]
            for column in get_args(Column)
        }
        document: dict[str, object] = {
            "name": row.name,
            "status": row.verdict.status.value,
            "sentence": row.verdict.sentence,
            "cells": cells,
        }
        return document | {
            key: value for key, value in (("use", row.use), ("todo", row.verdict.todo)) if value
        }

    target = structs.asdict(audit.target)
    del target["index"], target["recipe"]  # internal to this repository
    return {
        **msgspec.to_builtins(target),
        "commit": audit.commit,
        "sources": msgspec.to_builtins(audit.outcomes, order="sorted"),
        "rows": list(map(row_document, audit.rows)),
        "archs": list(map(row_document, audit.archs)),
    }


def markdown(report: Report, *, level: int = 2, lines: bool = True, every: bool = True) -> str:
    """Return the report as Markdown; `lines` keeps the line numbers of this repository's files.

    Unless `every`, the tables have only the rows that need a decision, the gravest first.
    """
    parts = [part for audit in report.audits for part in _audit(audit, report, level, lines, every)]
    return "\n\n".join(filter(None, parts)) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    grid = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    grid += ["|" + "".join(f" {text} |" if text else " |" for text in row) for row in rows]
    return "\n".join(grid)


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
        if [line for line in old.split("\n") if line in (BEGIN, END)] != [BEGIN, END] or between is None:
            raise UsageError(f"{path}: no markers for the table", f"add the lines {BEGIN} and {END}")
        new = "\n".join(["", *text.strip("\n").split("\n"), "", ""])
        if between[0] == new:
            return False
        end_of_line = "\r\n" if "\r\n" in content else "\n"
        files.write(path.resolve(), _BETWEEN.sub(lambda _: new, old).replace("\n", end_of_line))
    except (OSError, UnicodeDecodeError) as error:
        hint = f"pass a writable file with the lines {BEGIN} and {END}"
        raise UsageError(f"{path}: cannot be read or written: {error}", hint) from error
    return True


def escape(text: str, *, lines: bool = True) -> str:
    """Escape Markdown in a text, and remove line numbers unless `lines`."""
    text = plain(text if lines else re.sub(r"(\.\w+):\d+", r"\1", text))
    return re.sub(r"([\\|*<\[\]`]|(?<!\w)_|_(?!\w))", r"\\\1", text).replace("\n", " ")


def _audit(audit: Audit, report: Report, level: int, lines: bool, every: bool) -> Iterable[str]:
    target, labels = audit.target, dict[str, str]()

    def cell(parts: Iterable[CellPart]) -> str:
        return "<br>".join(_part(part, labels, target.package) for part in parts)

    def status(row: AuditRow) -> str:
        value = row.verdict.status.value
        return value if row.verdict.status in _SETTLED else f"**{value}**"

    commit = f" ({audit.commit[:10]})" if audit.commit else ""
    yield f"{'#' * level} {escape(f'{target.package} {target.version}')}"
    upstream = f"Upstream's {target.tag}{commit}" if target.tag else "No source that names upstream"
    yield escape(f"{upstream}. This table was made on {report.made[:10]}.")
    listed = [row for row in audit.rows if not row.vendored_only or row.use == "listed"]
    chosen, archs = (listed, audit.archs) if every else (_undecided(listed), _undecided(audit.archs))
    if chosen:
        lines_of_table = ([escape(row.name), *map(cell, cells(row)), status(row)] for row in chosen)
        yield table(("package", "upstream", "recipe", "conda-forge", "status"), lines_of_table)
    if archs:
        by_cuda = ([row.name.removeprefix("CUDA "), *map(cell, cells(row)), status(row)] for row in archs)
        yield table(("CUDA", "upstream", "recipes", "status"), by_cuda)
    yield "\n".join(
        f"* {escape(', '.join(names))}: {escape(text, lines=lines)}."
        for (_, text), names in audit.findings().items()
    )
    counts = {status: len(audit.with_status([status])) for status in Status}
    texts = [f"{count} {status.value}" for status, count in counts.items() if count]
    yield f"{', '.join(texts) or 'nothing found'}."
    hidden = len(listed) + len(audit.archs) - len(chosen) - len(archs)
    if hidden:
        names = " and ".join(f"'{status.value}'" for status in _SETTLED)
        yield f"{counted(hidden, 'row')} with status {names} not shown: add --all."
    if troubles := audit.troubles():
        yield "Not read, or only in part:"
        yield "\n".join(f"* {source}: {escape(reason)}." for source, reason in troubles.items())
    yield "\n".join(
        f"[{label}]: {url.replace(' ', '%20').replace('<', '%3C').replace('>', '%3E')}"
        for url, label in labels.items()
    )


def _undecided(rows: Iterable[AuditRow]) -> list[AuditRow]:
    """Return the rows that need a decision, the gravest first."""
    left = [row for row in rows if row.verdict.status not in _SETTLED]
    return sorted(left, key=lambda row: row.verdict.gravity)


def _part(part: CellPart, labels: dict[str, str], package: str) -> str:
    text = plain(part.text)
    if not re.fullmatch(r"[\w .,;:+-]*", text) or "_" in text:
        text = "`" + text.replace("|", "\\|").replace("`", "'") + "`"
    if part.url.startswith(("https://", "http://")):
        text = f"[{text}][{labels.setdefault(part.url, f'{package}-{len(labels) + 1}')}]"
    return f"{text} {escape(part.remark)}".strip()
