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
from groundwork.text import plain
from pin_audit.facts import (
    UPSTREAM,
    CiPin,
    Column,
    FeedstockPin,
    GlobalPin,
    Migration,
    Newest,
    RecipeArchs,
    RecipeCommit,
    RecipePin,
    Scope,
    Submodule,
    TagCommit,
    UpstreamArchs,
    config_words,
    short_platforms,
    short_revision,
)
from pin_audit.rows import AuditRow, Status, excludes, is_optional
from pin_audit.table import Audit
from pin_audit.versions import newest

FORMAT, FORMAT_VERSION = "audit", 4
BEGIN, END = "<!-- audit:begin -->", "<!-- audit:end -->"
_BETWEEN = re.compile(rf"(?<={BEGIN}\n)(?:.*\n)*?(?={END}$)", re.MULTILINE)
_PYTHON = re.compile(r"(?<![\w.])3\.(\d+)(?:\.\*)?(?: \*_cp3\d+(t)\b)?")
_FREE = re.compile(r"_cp3\d+t\b")  # a build of Python without the GIL


@dataclass(frozen=True, kw_only=True)
class CellPart:
    """One value in a cell."""

    text: str
    scope: str = ""  #: the configs where it holds; shown in brackets
    notes: tuple[str, ...] = ()  #: its source and qualifiers; shown in parentheses
    url: str = ""  #: web page of the source; may be empty

    @property
    def remark(self) -> str:
        """The text after the value: ``[cuda129] (wheel)``."""
        notes = ", ".join(filter(None, self.notes))
        return f"{f'[{self.scope}]' if self.scope else ''} {f'({notes})' if notes else ''}".strip()


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


def markdown(report: Report, *, level: int = 2, lines: bool = True) -> str:
    """Return the report as Markdown; `lines` keeps the line numbers of this repository's files."""
    parts = [part for audit in report.audits for part in _audit(audit, report, level, lines)]
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


def _audit(audit: Audit, report: Report, level: int, lines: bool) -> Iterable[str]:
    target, labels = audit.target, dict[str, str]()

    def cell(parts: Iterable[CellPart]) -> str:
        return "<br>".join(_part(part, labels, target.package) for part in parts)

    def status(row: AuditRow) -> str:
        value = row.verdict.status.value
        return value if row.verdict.status in (Status.IN_STEP, Status.UNPINNED) else f"**{value}**"

    commit = f" ({audit.commit[:10]})" if audit.commit else ""
    yield f"{'#' * level} {escape(f'{target.package} {target.version}')}"
    upstream = f"Upstream's {target.tag}{commit}" if target.tag else "No source that names upstream"
    yield escape(f"{upstream}, {_days(audit, report)}.")
    chosen = [row for row in audit.rows if not row.vendored_only or row.use == "listed"]
    if chosen:
        lines_of_table = ([escape(row.name), *map(cell, cells(row)), status(row)] for row in chosen)
        yield table(("package", "upstream", "recipe", "conda-forge", "status"), lines_of_table)
    if audit.archs:
        by_cuda = (
            [row.name.removeprefix("CUDA "), *map(cell, cells(row)), status(row)] for row in audit.archs
        )
        yield table(("CUDA", "upstream", "recipes", "status"), by_cuda)
    yield "\n".join(
        f"* {escape(', '.join(names))}: {escape(text, lines=lines)}."
        for (_, text), names in audit.findings().items()
    )
    counts = {status: len(audit.with_status([status])) for status in Status}
    texts = [f"{count} {status.value}" for status, count in counts.items() if count]
    yield f"{', '.join(texts) or 'nothing found'}."
    if troubles := audit.troubles():
        yield "Not read, or only in part:"
        yield "\n".join(f"* {source}: {escape(reason)}." for source, reason in troubles.items())
    yield "\n".join(
        f"[{label}]: {url.replace(' ', '%20').replace('<', '%3C').replace('>', '%3E')}"
        for url, label in labels.items()
    )


def _part(part: CellPart, labels: dict[str, str], package: str) -> str:
    text = plain(part.text)
    if not re.fullmatch(r"[\w .,;:+-]*", text) or "_" in text:
        text = "`" + text.replace("|", "\\|").replace("`", "'") + "`"
    if part.url.startswith(("https://", "http://")):
        text = f"[{text}][{labels.setdefault(part.url, f'{package}-{len(labels) + 1}')}]"
    return f"{text} {escape(part.remark)}".strip()


def _days(audit: Audit, report: Report) -> str:
    """Return the day of the report, and that of conda-forge's pins if they are a snapshot's."""
    pinnings = (outcome for outcome in audit.outcomes if outcome.source == "pinning" and outcome.snapshot)
    days = [fact.where.fetched[:10] for outcome in pinnings for fact in outcome.facts]
    return f"made {report.made[:10]}" + (f", conda-forge's pins of {max(days)}" if days else "")


# ---- cells ------------------------------------------------------------------------------------------


def cells(row: AuditRow) -> tuple[Sequence[CellPart], ...]:
    """Return a row's cells: upstream's, the recipe's and, except for architectures, conda-forge's."""
    if row.all(UpstreamArchs, RecipeArchs):
        return _upstream_archs(row), _recipe_archs(row)
    return _upstream(row), _recipe(row), [*_conda_forge(row), *_newest(row)]


def _upstream(row: AuditRow) -> Sequence[CellPart]:
    """Return upstream's versions: its copy, its wheel's requirement, its CI for the CUDA versions of the configs."""
    parts: list[CellPart] = []
    unread: list[CellPart] = []
    for fact in row.all(*UPSTREAM, TagCommit):
        shipped = isinstance(fact, CiPin) and fact.shipped
        notes = ["extra" if is_optional(fact) else "wheel" if shipped else fact.who]
        commit = short_revision(fact.commit) if isinstance(fact, Submodule) else ""
        if fact.trouble:  # a submodule's commit is known even if no tag describes it
            (parts if commit else unread).append(CellPart(text=commit or "not read", notes=(*notes,)))
        elif any(map(fact.holds.matches, row.builds)):
            notes += [commit] if row.all(RecipeCommit) else []
            notes += fact.holds.words(row.builds).split(", ") if isinstance(fact, CiPin) else []
            # a header inside the wheel belongs to the release, so that its value counts as read
            notes += ["inferred"] if fact.where.inferred and not fact.where.index else []
            value = fact.text if isinstance(fact, Submodule) else fact.value
            value = short_revision(value) if isinstance(fact, TagCommit) else value
            text = "any" if value in ("", "*") else re.sub(r"^={2,3}(?=[^,]*$)", "", value)
            parts.append(CellPart(text=text, notes=(*notes,), url=fact.where.url))
    return _merge(parts or unread)


def _recipe(row: AuditRow) -> Sequence[CellPart]:
    """Return the recipe's constraints, without bare names of pinned packages and without build strings."""
    facts = [fact for fact in row.all(RecipePin) if not fact.trouble and not excludes(fact)]
    covered = {config for fact in facts if fact.value != "*" for config in fact.holds.configs}
    facts = [fact for fact in facts if fact.value != "*" or {*fact.holds.configs} - covered]
    values: dict[str, list[RecipePin]] = {}
    for fact in sorted(facts, key=lambda fact: fact.value == "*"):
        text = fact.value.partition(" ")[0]
        text = (
            "any" if fact.value == "*" else fact.value if text == "*" else text
        )  # any version, of one build
        if row.name == "python":  # free-threaded Pythons get a part of their own
            text = str(bool(_FREE.search(fact.value)))
        values.setdefault(text, []).append(fact)
    parts = []
    for text, pins in values.items():
        scope = config_words({config for fact in pins for config in fact.holds.configs}, row.builds)
        text = _shorten(", ".join(fact.value for fact in pins)) if row.name == "python" else text
        parts.append(CellPart(text=text, scope=scope if len(values) > 1 else ""))
    for commit in row.all(RecipeCommit):
        whose = commit.recipe if commit.recipe != row.name else ""
        words = filter(None, (whose, config_words(commit.holds.configs, row.builds)))
        parts.append(CellPart(text=short_revision(commit.value) or "any", scope=", ".join(words)))
    return parts


def _conda_forge(row: AuditRow) -> Sequence[CellPart]:
    """Return the global pin, its migrations, and the feedstock's value if it differs.

    Left out: pins for platforms where the recipe does not require the package, and paused migrations.
    """
    asked = row.all(RecipePin)
    here = {build.platform for build in row.builds if any(fact.holds.matches(build) for fact in asked)}
    parts: list[CellPart] = []
    for fact in row.all(GlobalPin):
        where = set(fact.holds.platforms)
        values = dict.fromkeys(value for value in fact.values if value != "None")
        if values and (not here or not where or where & here) and not getattr(fact, "paused", False):
            scope = Scope(cuda=fact.holds.cuda).words()
            kind = f"migration {fact.migration}" if isinstance(fact, Migration) else "pin"
            notes = [f"{kind} for {scope}" if scope else kind]
            notes += short_platforms(where) if where and not where >= here else []
            notes += ["inferred"] if fact.where.inferred else []
            parts.append(CellPart(text=_join(row, values), notes=(*notes,), url=fact.where.url))
    shown = {part.text for part in parts}
    for own in row.all(FeedstockPin):  # shown only if it differs from the current pins
        text = _join(row, [own.value])
        if own.value != "None" and text not in shown and any(map(own.holds.matches, row.builds)):
            words = (*short_platforms(own.holds.platforms), Scope(cuda=own.holds.cuda).words())
            note = " ".join(filter(None, ("feedstock", *words)))
            parts.append(CellPart(text=text, notes=(note,), url=own.where.url))
    return _merge(parts)


def _newest(row: AuditRow) -> list[CellPart]:
    facts = [fact for fact in row.all(Newest) if not fact.trouble]
    best = newest(fact.value for fact in facts)
    parts = []
    for fact in sorted(facts, key=lambda fact: fact.value != best):
        day = f"newest in a copy of {fact.where.fetched[:10]}" if fact.where.inferred else "newest"
        platforms = () if fact.value == best else short_platforms(fact.holds.platforms)
        parts.append(CellPart(text=fact.value, notes=(day, *platforms), url=fact.where.url))
    return _merge(parts)


def _upstream_archs(row: AuditRow) -> Sequence[CellPart]:
    parts = []
    for fact in row.all(UpstreamArchs):
        if (fact.archs or fact.value) and not fact.trouble:
            source = ("wheel" if fact.where.index else "CI") if fact.archs else ""
            notes = (source, *fact.holds.platforms, "inferred" if fact.where.inferred else "")
            parts.append(CellPart(text=" ".join(fact.archs) or fact.value, notes=notes, url=fact.where.url))
    return parts


def _recipe_archs(row: AuditRow) -> Sequence[CellPart]:
    return [
        CellPart(text=" ".join(fact.archs), scope=", ".join(fact.holds.platforms))
        for fact in row.all(RecipeArchs)
    ]


def _merge(parts: Iterable[CellPart]) -> list[CellPart]:
    merged: dict[str, CellPart] = {}
    for part in parts:
        other = merged.get(part.text, part)
        notes = tuple(dict.fromkeys((*other.notes, *part.notes)))
        merged[part.text] = CellPart(text=part.text, notes=notes, url=other.url or part.url)
    return list(merged.values())


def _join(row: AuditRow, values: Iterable[str]) -> str:
    text = ", ".join(values)
    return _shorten(text) if row.name == "python" else text


def _shorten(text: str) -> str:
    """Abbreviate a list of Pythons: ``3.10 to 3.13, 3.14t``."""
    if any(sign in text for sign in "<>=!~"):
        return text
    pythons = {(int(minor), free) for minor, free in _PYTHON.findall(text)}
    minors = sorted(minor for minor, free in pythons if not free)
    whole = len(minors) > 2 and minors == [*range(minors[0], minors[-1] + 1)]
    shown = [f"3.{minors[0]} to 3.{minors[-1]}"] if whole else [f"3.{minor}" for minor in minors]
    return ", ".join([*shown, *(f"3.{minor}t" for minor, free in sorted(pythons) if free)]) or text
