"""The changes that a bump consists of: each a place, what stands there, what must, and who says so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Kind(str, Enum):
    """Who makes a change."""

    CERTAIN = "certain"  #: ``--fix`` writes it
    COMMAND = "command"  #: the command that the note names writes it
    PERSON = "for a person"
    FOLLOWS = "follows"  #: nobody: what stands there is right for both versions


CERTAIN, COMMAND, PERSON, FOLLOWS = Kind


@dataclass(frozen=True)
class Edit:
    """Lines in place of one line."""

    file: str  #: below the repository's root
    line: int  #: counted from 1
    before: str
    after: tuple[str, ...]  #: none: the line goes


@dataclass(frozen=True)
class Change:
    """One place that another version concerns."""

    topic: str  #: ``version``, ``sha256``, ``triton``, ...
    kind: Kind
    file: str  #: below the repository's root
    line: int | None
    old: str
    new: str  #: empty where it cannot be known: the note says why
    source: str  #: who says so
    note: str = ""  #: for whoever has to decide; or the command
    edits: tuple[Edit, ...] = ()

    @property
    def place(self) -> str:
        """File and line, as editors take them."""
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Said:
    """A value, and who says it; without a value, why it is not known."""

    value: str
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Bump:
    """Everything that another version of a package concerns."""

    package: str
    old: str
    new: str
    commit: str  #: of the new version; empty where it was not read
    changes: tuple[Change, ...]
    unread: tuple[str, ...]  #: sentences: what could not be read, so that something may be missing

    def of(self, *kinds: Kind) -> tuple[Change, ...]:
        """Return the changes of some kinds."""
        return tuple(one for one in self.changes if one.kind in kinds)

    def edits(self) -> tuple[Edit, ...]:
        """Return what ``--fix`` writes, each once."""
        return tuple(dict.fromkeys(edit for one in self.of(CERTAIN) for edit in one.edits))


def applied(text: str, edits: Iterable[Edit]) -> str:
    """Return a file's text with edits made; raises ValueError if a line is not what it was, or has two edits."""
    lines, done = text.splitlines(keepends=True), set()
    for edit in sorted(edits, key=lambda one: one.line, reverse=True):
        old = lines[edit.line - 1] if edit.line <= len(lines) else ""
        if old.rstrip("\r\n") != edit.before or edit.line in done:
            raise ValueError(f"line {edit.line} is not '{edit.before}'")
        done.add(edit.line)
        end = old[len(edit.before) :]
        lines[edit.line - 1 : edit.line] = [f"{line}{end}" for line in edit.after]
    return "".join(lines)
