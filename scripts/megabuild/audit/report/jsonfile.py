"""The report, and its JSON: sorted, versioned, with the provenance of every value; written whole, and read again."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from megabuild.audit.facts import (
    UPSTREAM,
    Build,
    Fact,
    GlobalPin,
    Newest,
    Outcome,
    RecipeCommit,
    RecipePin,
    TagCommit,
    Target,
)
from megabuild.audit.names import Names
from megabuild.audit.rows import Audit, tabulate
from megabuild.errors import UsageError

FORMAT = 2
_COLUMNS: dict[str, tuple[type[Fact], ...]] = {
    "upstream": (*UPSTREAM, TagCommit),
    "recipe": (RecipePin, RecipeCommit),
    "conda-forge": (GlobalPin, Newest),
}


@dataclass(frozen=True, kw_only=True)
class Report:
    """The tables of one or more packages.

    Parameters
    ----------
    made:
        When, ISO 8601 in UTC.
    audits:
        One per package.
    """

    made: str
    audits: tuple[Audit, ...]

    @property
    def day(self) -> date:
        """The day on which it was made."""
        return date.fromisoformat(self.made[:10])


class _Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A row as scripts read it; each cell names the source and, counted from 0, the number of its fact."""

    status: str
    sentence: str
    cells: dict[str, list[str]]
    name: str = ""
    cuda: str = ""
    use: str = ""
    why: str = ""


class _Package(msgspec.Struct, kw_only=True):
    package: str
    version: str
    repository: str
    tag: str
    wheel: str
    commit: str
    builds: tuple[Build, ...]
    sources: tuple[Outcome, ...]
    rows: list[_Line] | None = None
    archs: list[_Line] | None = None


class _Document(msgspec.Struct, kw_only=True):
    format: int
    made: str
    packages: tuple[_Package, ...]


def text(report: Report) -> str:
    """Return a report as the text of a JSON file."""
    document = _Document(
        format=FORMAT, made=report.made, packages=tuple(_package(audit) for audit in report.audits)
    )
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=1).decode() + "\n"


def write(content: str, path: Path) -> None:
    """Write a file so that it appears whole or not at all.

    Raises
    ------
    UsageError
        It cannot be written.
    """
    partial: Path | None = None
    try:
        # through a link to the file that it means
        target = path.resolve()
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        partial = Path(name)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as stream:
            stream.write(content)
        mode = target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask()
        partial.chmod(mode)
        partial.replace(target)
    except OSError as error:
        if partial is not None:
            with suppress(OSError):
                partial.unlink()
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}", "name a file that can be written"
        ) from error


def read(path: Path, names: Names) -> Report:
    """Read a report, and judge its facts as this version does.

    Parameters
    ----------
    path:
        As `text` makes it.
    names:
        The mapping for its rows.

    Raises
    ------
    UsageError
        It cannot be read, is no report, or is one of another format.
    """
    try:
        content = path.read_bytes()
        found = msgspec.json.decode(content, type=dict[str, Any]).get("format")
        if found is not None and found != FORMAT:
            raise UsageError(
                f"{path} has format {found}, this program reads {FORMAT}",
                "make it anew, or use the program that made it",
            )
        document = msgspec.json.decode(content, type=_Document)
        report = Report(
            made=document.made, audits=tuple(_audit(package, names) for package in document.packages)
        )
        report.day  # noqa: B018 - a date that is none is noticed here
        return report
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror or error}", "name a report of --json"
        ) from error
    except (ValueError, msgspec.MsgspecError) as error:
        raise UsageError(f"{path} is no report of the audit: {error}", "name a report of --json") from error


def _package(audit: Audit) -> _Package:
    target = audit.target
    places = {
        id(fact): f"{outcome.source}/{number}"
        for outcome in audit.outcomes
        for number, fact in enumerate(outcome.facts)
    }
    return _Package(
        package=target.package,
        version=target.version,
        repository=target.repository,
        tag=target.tag,
        wheel=target.wheel,
        commit=audit.commit,
        builds=target.builds,
        sources=audit.outcomes,
        rows=[
            _Line(
                name=row.name,
                use=row.use,
                why=row.why,
                status=row.status.value,
                sentence=row.sentence,
                cells={
                    column: [places[id(one)] for one in row.facts if isinstance(one, kinds)]
                    for column, kinds in _COLUMNS.items()
                },
            )
            for row in audit.rows
        ],
        archs=[
            _Line(
                cuda=row.cuda,
                status=row.status.value,
                sentence=row.sentence,
                cells={
                    "upstream": [places[id(one)] for one in row.upstream],
                    "recipe": [places[id(one)] for one in row.recipes],
                },
            )
            for row in audit.archs
        ],
    )


def _audit(package: _Package, names: Names) -> Audit:
    target = Target(
        package=package.package,
        version=package.version,
        repository=package.repository,
        tag=package.tag,
        wheel=package.wheel,
        builds=package.builds,
    )
    return tabulate(target, package.sources, names)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
