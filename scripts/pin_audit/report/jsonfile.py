"""The report, and its JSON: sorted, versioned, with the provenance of every value; written whole, and read again."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from groundwork import files
from groundwork.errors import UsageError
from groundwork.result import Result
from pin_audit.advice import advice
from pin_audit.claims import AuditRow
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
from pin_audit.gather import OWN
from pin_audit.names import Names
from pin_audit.report.cells import cells
from pin_audit.table import Audit, tabulate

_FORMAT = "megabuild/audit"
_VERSIONS = (2, 3)  # that are read; the last one is written
_REMEDY = "name a report of --json"
_COLUMNS = {
    "upstream": (*UPSTREAM, TagCommit, UpstreamArchs),
    "recipe": (RecipePin, RecipeCommit, RecipeArchs),
    "conda-forge": (GlobalPin, FeedstockPin, Newest),
}


@dataclass(frozen=True, kw_only=True)
class Report:
    """The tables of one or more packages, and when they were made: ISO 8601 in UTC."""

    made: str
    audits: tuple[Audit, ...]

    @property
    def day(self) -> date:
        """The day on which it was made."""
        return date.fromisoformat(self.made[:10])


@dataclass(frozen=True, kw_only=True)
class CellChange:
    """One cell that is not what it was: of a row ``upstream``, ``recipe``, ``conda-forge`` or ``status``."""

    row: str
    column: str
    before: str
    after: str


class _Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A row as scripts read it; each cell names the source and, counted from 0, the number of its fact."""

    status: str
    sentence: str
    cells: dict[str, list[str]]
    name: str = ""
    cuda: str = ""
    use: str = ""
    why: str = ""
    todo: str = ""


class _Package(AuditTarget, frozen=True, kw_only=True, omit_defaults=True):
    commit: str
    sources: tuple[SourceOutcome, ...]
    rows: list[_Line] | None = None
    archs: list[_Line] | None = None


@resolve_types
class _Document(msgspec.Struct, kw_only=True):
    made: str
    packages: tuple[_Package, ...]


def result(report: Report, lines: Sequence[str] = (), exit_code: int = 0) -> Result:
    """Return a report as a command returns it."""
    made = _Document(made=report.made, packages=tuple(map(_package, report.audits)))
    return Result(
        format="audit",
        format_version=_VERSIONS[-1],
        document=msgspec.to_builtins(made, order="sorted"),
        lines=lines,
        exit_code=exit_code,
    )


def text(report: Report) -> str:
    """Return a report as the text of a JSON file."""
    return json.dumps(result(report).to_json(), indent=1, ensure_ascii=False) + "\n"


def write(content: str, path: Path) -> None:
    """Write a file, or the one that a link means, so that it appears whole or not at all; raises UsageError.

    What is there and is no file, as /dev/null or a pipe, is written to: a rename would put a file in its place.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_text(content, encoding="utf-8")
        else:
            files.write(path.resolve(), content)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"cannot write {path}: {reason}", "name a file that can be written") from error


def read(path: Path, names: Names) -> Report:
    """Read a report as `text` makes it, and judge its facts anew; raises UsageError for anything else."""
    try:
        content = path.read_bytes()
        head = msgspec.json.decode(content, type=dict[str, Any])
        name, version = head.get("format"), head.get("format_version")
        if isinstance(name, int):  # up to version 2 the format was its version
            name, version = _FORMAT, name
        if name is not None and (name != _FORMAT or version not in _VERSIONS):
            known = f"{_FORMAT} of version {' or '.join(map(str, _VERSIONS))}"
            remedy = "make it anew, or use the program that made it"
            raise UsageError(f"{path} has format {name} {version}, this program reads {known}", remedy)
        document = msgspec.convert(head, _Document)
        date.fromisoformat(document.made[:10])
        audits = (_audit(package, names) for package in document.packages)
        return Report(made=document.made, audits=tuple(audits))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}", _REMEDY) from error
    except (ValueError, msgspec.MsgspecError) as error:
        raise UsageError(f"{path} is not a report of the audit: {error}", _REMEDY) from error


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The difference between two reports."""

    changes: tuple[CellChange, ...]  #: sorted by package and row
    unmatched: tuple[str, ...]  #: packages that one of the reports lacks
    unread: tuple[str, ...]  #: sources that one of the two could not read or did not ask; they are left out
    values: int  #: how many single values are left out, because one of the two could not read them
    empty: bool  #: whether nothing from outside this repository, of all that was asked, could be compared


def compare(old: Report, new: Report, names: Names) -> Comparison:
    """Compare only what both reports have read: what one of them could not read has not changed."""
    was = {audit.target.package: audit for audit in old.audits}
    now = {audit.target.package: audit for audit in new.audits}
    found: list[CellChange] = []
    unread: dict[str, None] = {}
    values, asked, common = 0, False, False
    for name in (one for one in now if one in was):
        before, after = _read(was[name]), _read(now[name])
        read = before.keys() & after.keys()
        unread |= dict.fromkeys(sorted(before.keys() ^ after.keys() | _requested(was[name]) - read))
        asked |= bool(_requested(now[name]) - set(OWN))
        common |= any(before[source].applies for source in read - set(OWN))
        troubled = {
            (source, fact.name)
            for source in read
            for fact in (*before[source].facts, *after[source].facts)
            if fact.trouble
        }
        values += len(troubled)
        left = (
            tabulate(audit.target, [_without(outcomes[one], troubled) for one in sorted(read)], names)
            for audit, outcomes in ((was[name], before), (now[name], after))
        )
        found += _between(*left)
    return Comparison(
        changes=tuple(found),
        unmatched=tuple(sorted(was.keys() ^ now.keys())),
        unread=tuple(unread),
        values=values,
        empty=asked and not common,
    )


def _read(audit: Audit) -> dict[str, SourceOutcome]:
    return {one.source: one for one in audit.outcomes if not one.unread}


def _requested(audit: Audit) -> set[str]:
    return {one.source for one in audit.outcomes}


def _without(outcome: SourceOutcome, troubled: Collection[tuple[str, str]]) -> SourceOutcome:
    facts = tuple(one for one in outcome.facts if (outcome.source, one.name) not in troubled)
    return msgspec.structs.replace(outcome, facts=facts)


def _between(old: Audit, new: Audit) -> Iterator[CellChange]:
    before, after = old.target.version, new.target.version
    if before != after:
        yield CellChange(row=new.target.package, column="version", before=before, after=after)
    was, now = _texts(old), _texts(new)
    for row in sorted(was.keys() | now.keys(), key=str.lower):
        gone, here = was.get(row, {}), now.get(row, {})
        for column in here or gone:
            if gone.get(column, "") != here.get(column, ""):
                yield CellChange(
                    row=row, column=column, before=gone.get(column, ""), after=here.get(column, "")
                )


def _texts(audit: Audit) -> dict[str, dict[str, str]]:
    """Return what stands in the cells, by row and column."""
    return {
        row.name: {
            **{
                column: ", ".join(f"{part.text} {part.remark}".strip() for part in parts)
                for column, parts in cells(row).items()
            },
            "status": row.status.value,
        }
        for row in (*audit.rows, *audit.archs)
    }


def _package(audit: Audit) -> _Package:
    places = {
        id(fact): f"{outcome.source}/{number}"
        for outcome in audit.outcomes
        for number, fact in enumerate(outcome.facts)
    }

    def line(row: AuditRow, *, cuda: str = "") -> _Line:
        return _Line(
            name="" if cuda else row.name,
            cuda=cuda,
            use=row.use,
            why=row.why,
            status=row.status.value,
            sentence=row.sentence,
            todo=advice(row),
            cells={
                column: [places[id(one)] for one in row.facts if isinstance(one, kinds)]
                for column, kinds in _COLUMNS.items()
                if not (cuda and column == "conda-forge")
            },
        )

    known = msgspec.structs.asdict(audit.target)
    return _Package(
        **{**known, "index": "pip", "recipe": None},  # these are this repository's own affair
        commit=audit.commit,
        sources=audit.outcomes,
        rows=[line(row) for row in audit.rows],
        archs=[line(row, cuda=row.name.removeprefix("CUDA ")) for row in audit.archs],
    )


def _audit(package: _Package, names: Names) -> Audit:
    fields = {name: getattr(package, name) for name in AuditTarget.__struct_fields__}
    return tabulate(AuditTarget(**fields), package.sources, names)
