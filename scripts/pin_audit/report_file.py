"""The report, and its JSON with the provenance of every value; written whole, read again, compared with a later one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from groundwork import files
from groundwork.errors import UsageError
from groundwork.result import Result
from pin_audit.cells import cells
from pin_audit.constraints import AuditRow
from pin_audit.facts import (
    UPSTREAM,
    AuditTarget,
    FeedstockPin,
    GlobalPin,
    Newest,
    RecipeArchs,
    RecipeCommit,
    RecipePin,
    SourceOutcome,
    TagCommit,
    UpstreamArchs,
    resolve_types,
)
from pin_audit.name_map import names
from pin_audit.run_sources import OWN
from pin_audit.suggestions import suggest
from pin_audit.table import Audit, tabulate

_FORMAT, _VERSION = "audit", 3
_REMEDY = "name a report of --json"
_COLUMNS: dict[str, tuple[type, ...]] = {
    "upstream": (*UPSTREAM, TagCommit, UpstreamArchs),
    "recipe": (RecipePin, RecipeCommit, RecipeArchs),
    "conda-forge": (GlobalPin, FeedstockPin, Newest),
}


@dataclass(frozen=True, kw_only=True)
class Report:
    """The tables of one or more packages, and when they were made: ISO 8601 in UTC."""

    made: str
    audits: tuple[Audit, ...]


class RowDocument(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A row as scripts read it; each cell names the source and, counted from 0, the number of its fact."""

    status: str
    sentence: str
    cells: dict[str, list[str]]
    name: str = ""
    cuda: str = ""
    use: str = ""
    why: str = ""
    todo: str = ""


class PackageDocument(AuditTarget, frozen=True, kw_only=True, omit_defaults=True):
    """One package's table with its inputs."""

    commit: str
    sources: tuple[SourceOutcome, ...]
    rows: tuple[RowDocument, ...] = ()
    archs: tuple[RowDocument, ...] = ()


@resolve_types
class ReportDocument(msgspec.Struct, kw_only=True):
    """What a report's JSON has besides its format."""

    made: str
    packages: tuple[PackageDocument, ...]


def result(report: Report, lines: Sequence[str] = (), exit_code: int = 0) -> Result:
    """Return a report as a command returns it."""
    document = ReportDocument(made=report.made, packages=tuple(map(_package, report.audits)))
    content = msgspec.to_builtins(document, order="sorted")
    return Result(format=_FORMAT, format_version=_VERSION, document=content, lines=lines, exit_code=exit_code)


def text(made: Result) -> str:
    """Return a result as the text of a JSON file."""
    return msgspec.json.format(msgspec.json.encode(made.to_json()), indent=1).decode() + "\n"


def write(content: str, path: Path) -> None:
    """Write a file, or the one that a link means, whole or not at all; a device or pipe is written to."""
    try:
        if path.exists() and not path.is_file():
            path.write_text(content, encoding="utf-8")
        else:
            files.write(path.resolve(), content)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"cannot write {path}: {reason}", "name a file that can be written") from error


def read(path: Path) -> Report:
    """Read a report as `text` makes it, and judge its facts again; raises UsageError for anything else."""
    try:
        head = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        known = (f"megabuild/{_FORMAT}", _VERSION)
        if (head.get("format"), head.get("format_version")) != known:
            found = f"{head.get('format')} {head.get('format_version')}"
            raise UsageError(f"{path} has format {found}, this program reads {known[0]} {known[1]}", _REMEDY)
        document = msgspec.convert(head, ReportDocument)
        date.fromisoformat(document.made[:10])
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}", _REMEDY) from error
    except (ValueError, msgspec.MsgspecError) as error:
        raise UsageError(f"{path} is not a report of the audit: {error}", _REMEDY) from error
    audits = (
        tabulate(
            AuditTarget(**{name: getattr(package, name) for name in AuditTarget.__struct_fields__}),
            package.sources,
            names(),
        )
        for package in document.packages
    )
    return Report(made=document.made, audits=tuple(audits))


def _package(audit: Audit) -> PackageDocument:
    places = {
        id(fact): f"{outcome.source}/{number}"
        for outcome in audit.outcomes
        for number, fact in enumerate(outcome.facts)
    }

    def line(row: AuditRow, *, cuda: bool) -> RowDocument:
        columns = [name for name in _COLUMNS if not (cuda and name == "conda-forge")]
        return RowDocument(
            name="" if cuda else row.name,
            cuda=row.name.removeprefix("CUDA ") if cuda else "",
            use=row.use,
            why=row.why,
            status=row.status.value,
            sentence=row.sentence,
            todo=suggest(row),
            cells={
                name: [places[id(fact)] for fact in row.facts if isinstance(fact, _COLUMNS[name])]
                for name in columns
            },
        )

    known = msgspec.structs.asdict(audit.target)
    return PackageDocument(
        **{**known, "index": "pip", "recipe": None},  # these are this repository's own affair
        commit=audit.commit,
        sources=audit.outcomes,
        rows=tuple(line(row, cuda=False) for row in audit.rows),
        archs=tuple(line(row, cuda=True) for row in audit.archs),
    )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The difference between two reports."""

    #: Row, column (``upstream``, ``recipe``, ``conda-forge`` or ``status``), before, after.
    changes: tuple[tuple[str, str, str, str], ...]
    unmatched: tuple[str, ...]  #: packages that one of the reports lacks
    unread: tuple[str, ...]  #: sources that one of the two could not read or did not ask; they are left out
    empty: bool  #: whether nothing from outside this repository, of all that was asked, could be compared


def compare(old: Report, new: Report) -> Comparison:
    """Compare only what both reports have read: what one of them could not read has not changed."""
    was, now = ({audit.target.package: audit for audit in report.audits} for report in (old, new))
    found: list[tuple[str, str, str, str]] = []
    unread: dict[str, None] = {}
    asked = common = False
    for name in (package for package in now if package in was):
        before, after = (
            {outcome.source: outcome for outcome in audit.outcomes if not outcome.unread}
            for audit in (was[name], now[name])
        )
        both = sorted(before.keys() & after.keys())
        named = {outcome.source for outcome in was[name].outcomes} | after.keys()
        troubled = {
            (source, fact.name)
            for source in both
            for fact in (*before[source].facts, *after[source].facts)
            if fact.trouble
        }
        unread |= dict.fromkeys(sorted(named - set(both)))
        unread |= dict.fromkeys(f"{value} ({source})" for source, value in sorted(troubled))
        asked |= any(outcome.source not in OWN for outcome in now[name].outcomes)
        common |= any(before[source].applies for source in both if source not in OWN)
        tables = (
            tabulate(audit.target, [_without(outcomes[source], troubled) for source in both], names())
            for audit, outcomes in ((was[name], before), (now[name], after))
        )
        found += _changed_cells(*tables)
    return Comparison(
        changes=tuple(found),
        unmatched=tuple(sorted(was.keys() ^ now.keys())),
        unread=tuple(unread),
        empty=asked and not common,
    )


def _without(outcome: SourceOutcome, troubled: Collection[tuple[str, str]]) -> SourceOutcome:
    facts = tuple(fact for fact in outcome.facts if (outcome.source, fact.name) not in troubled)
    return msgspec.structs.replace(outcome, facts=facts)


def _changed_cells(old: Audit, new: Audit) -> Iterator[tuple[str, str, str, str]]:
    before, after = old.target.version, new.target.version
    if before != after:
        yield new.target.package, "version", before, after
    was, now = _texts(old), _texts(new)
    for row in sorted(was.keys() | now.keys(), key=str.lower):
        gone, here = was.get(row, {}), now.get(row, {})
        for column in here or gone:
            if gone.get(column, "") != here.get(column, ""):
                yield row, column, gone.get(column, ""), here.get(column, "")


def _texts(audit: Audit) -> dict[str, dict[str, str]]:
    """Return the texts of all cells, by row and column."""
    return {
        row.name: {column: ", ".join(map(str, parts)) for column, parts in cells(row).items()}
        | {"status": row.status.value}
        for row in (*audit.rows, *audit.archs)
    }
