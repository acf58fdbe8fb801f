"""Both releases of a bump, the lines that may have to change, and a change of one of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from msgspec import Struct

from pin_audit import snapshots
from pin_audit.facts import Kind, Newest, Requirement, SourceOutcome, TagCommit, Where, known, of_kind
from pin_audit.recipe_lines import Line
from pin_audit.request import About, AuditRequest
from pin_audit.rows import cuda_of_wheel
from pin_audit.run_sources import READERS, gather, sources_about

VARIABLE = re.compile(r"\$?\{\{\s*(\w+)\s*\}\}")
_CHANNEL = "channel"  # the source of conda-forge's newest versions


@dataclass(frozen=True, kw_only=True)
class Release:
    """One version of a package, with the outcome of every source."""

    version: str
    outcomes: tuple[SourceOutcome, ...]

    def all(self, kind: type[Kind]) -> list[Kind]:
        """Return the facts of a kind that have a value."""
        found: list[Kind] = []
        for outcome in self.outcomes:
            found += known(of_kind(outcome.facts, kind))
        return found

    @property
    def commit(self) -> str:
        """The commit of its tag, or an empty string."""
        return next((fact.value for fact in self.all(TagCommit)), "")


def read_releases(requests: Sequence[AuditRequest]) -> list[Release]:
    """Read releases; the snapshot of one, if there is one, replaces sources that cannot be read."""
    releases = []
    readers = {name: READERS[name] for name in sources_about(About.RELEASE)}
    for request, outcomes in zip(requests, gather(requests, readers), strict=True):
        snapshot = snapshots.load(request.target.package, request.target.version)
        filled = tuple(snapshots.fill(outcome, [snapshot]) for outcome in outcomes)
        releases.append(Release(version=request.target.version, outcomes=filled))
    return releases


def read_newest(request: AuditRequest, names: Iterable[str]) -> tuple[Newest, ...]:
    """Read conda-forge's newest versions of packages, or take those of the snapshot."""
    wanted = replace(request, names=tuple(names))
    ((outcome,),) = gather([wanted], {_CHANNEL: READERS[_CHANNEL]})
    filled = snapshots.fill(outcome, [snapshots.load(snapshots.CHANNEL, "")])
    return tuple(of_kind(filled.facts, Newest))


def place_of(where: Where) -> str:
    """Describe in a few words where a fact was read."""
    if where.package:
        return f"{where.file.rpartition('/')[2]} of {where.package} {where.version}"
    return where.file or where.url


class ChangeKind(str, Enum):
    """Who decides on a change."""

    CERTAIN = "certain"  #: the new value is published
    PERSON = "for a person"


class Change(Struct, frozen=True):
    """One change for another version."""

    topic: str  #: ``version``, ``sha256``, ``triton``, ...
    kind: ChangeKind
    file: str = ""  #: below the repository's root
    line: int | None = None
    old: str = ""
    new: str = ""  #: empty if unknown: the note gives the reason
    source: str = ""  #: where the new value is published
    note: str = ""  #: help for the decision, or the command that generates the file


def change(
    line: Line,
    topic: str,
    kind: ChangeKind,
    *,
    old: str = "",
    new: str = "",
    source: str = "",
    note: str = "",
) -> Change:
    """Return a change of a line, or of its whole file if the line has no number."""
    return Change(topic, kind, line.file, line.number or None, old, new, source, note)


@dataclass(frozen=True, kw_only=True)
class BumpContext:
    """Both releases, and the lines that may have to change."""

    root: Path
    request: AuditRequest  #: of the new release
    old: Release
    new: Release
    recipe: tuple[Line, ...]  #: of the package's recipes, the main one first
    matrix: tuple[Line, ...] = ()
    newest: tuple[Newest, ...] = ()  #: conda-forge's newest versions of exactly required packages
    key: str = ""  #: the key in conda_build_config.yaml with the version; empty for other feedstocks

    def values(self, key: str, value: str) -> list[Line]:
        """Return the lines that set a key to a value, in conda_build_config.yaml or else in the recipe."""
        items = [line for line in self.matrix if line.key == key and line.value == value]
        if items:
            return items
        setting = re.compile(
            rf"""^\s*(?:\{{%-?\s*set\s+)?{re.escape(key)}\s*[:=]\s*["']?{re.escape(value)}["']?\s*(?:-?%\}}|#|$)"""
        )
        return [line for line in self.recipe if setting.match(line.text)]

    def definitions(self, line: Line, text: str) -> list[Line]:
        """Return the lines that define a line's value: the line itself, or those that set its variable."""
        variable = VARIABLE.fullmatch(text)
        if variable is None:
            return [line]
        setting = re.compile(rf"^\s*{variable[1]}\s*[:=]")
        lines = (*self.matrix, *self.recipe)
        return [other for other in lines if other.key == variable[1] or setting.match(other.text)]

    def set_value(
        self, topic: str, lines: Iterable[Line], *, old: str, new: str, source: str, doubt: str = ""
    ) -> Iterator[Change]:
        """Yield a new value for lines; if it is empty, the source has the reason.

        A person decides on rows of official wheels, and on a value in ``doubt``; Debian's rows do not change.
        """
        if old == new:
            return
        for line in lines:
            if line.is_of_debian:
                continue
            if not new:
                yield change(line, topic, ChangeKind.PERSON, old=old, note=f"unknown: {source}")
            elif line.is_of_wheels:
                cuda = cuda_of_wheel(self.new.all(Requirement)) or "unknown"
                note = f"row of official wheels, whose CUDA is {cuda}"
                yield change(line, topic, ChangeKind.PERSON, old=old, new=new, source=source, note=note)
            elif doubt:
                yield change(line, topic, ChangeKind.PERSON, old=old, new=new, source=source, note=doubt)
            else:
                yield change(line, topic, ChangeKind.CERTAIN, old=old, new=new, source=source)
