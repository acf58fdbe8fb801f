"""What changed between two reports: of two releases, or of two days."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from megabuild.audit.archs import ArchRow
from megabuild.audit.report.cells import Part, conda_forge, recipe, recipe_archs, upstream, upstream_archs
from megabuild.audit.report.jsonfile import Report
from megabuild.audit.rows import Audit, Row


@dataclass(frozen=True, kw_only=True)
class Change:
    """One cell that is not what it was.

    Parameters
    ----------
    package:
        Whose table.
    row:
        The dependency, or ``CUDA 13.0``.
    column:
        ``upstream``, ``recipe``, ``conda-forge`` or ``status``.
    before, after:
        Empty where there was, or is, nothing.
    """

    package: str
    row: str
    column: str
    before: str
    after: str


def changes(old: Report, new: Report) -> tuple[Change, ...]:
    """Return what changed, sorted by package and row; a package in one report only is left out."""
    before = {audit.target.package: audit for audit in old.audits}
    return tuple(
        change
        for audit in new.audits
        if audit.target.package in before
        for change in _between(before[audit.target.package], audit)
    )


def only_in_one(old: Report, new: Report) -> tuple[str, ...]:
    """Return the packages that one of the reports lacks, sorted."""
    return tuple(
        sorted({one.target.package for one in old.audits} ^ {one.target.package for one in new.audits})
    )


def _between(old: Audit, new: Audit) -> Iterator[Change]:
    package = new.target.package
    was, now = _cells(old), _cells(new)
    if old.target.version != new.target.version:
        yield Change(
            package=package,
            row=package,
            column="version",
            before=old.target.version,
            after=new.target.version,
        )
    for row, column in sorted(
        was.keys() | now.keys(), key=lambda key: (key[0].lower(), _ORDER.index(key[1]))
    ):
        before, after = was.get((row, column), ""), now.get((row, column), "")
        if before != after:
            yield Change(package=package, row=row, column=column, before=before, after=after)


_ORDER = ("upstream", "recipe", "conda-forge", "status")


def _cells(audit: Audit) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for row in audit.rows:
        found |= {(row.name, column): text for column, text in _row(row)}
    for arch in audit.archs:
        found |= {(f"CUDA {arch.cuda}", column): text for column, text in _arch_row(arch)}
    return found


def _row(row: Row) -> Iterator[tuple[str, str]]:
    yield "upstream", _text(upstream(row))
    yield "recipe", _text(recipe(row))
    yield "conda-forge", _text(conda_forge(row))
    yield "status", row.status.value


def _arch_row(row: ArchRow) -> Iterator[tuple[str, str]]:
    yield "upstream", _text(upstream_archs(row))
    yield "recipe", "; ".join(f"{', '.join(names)} {archs}" for archs, names in recipe_archs(row).items())
    yield "status", row.status.value


def _text(parts: Iterable[Part]) -> str:
    return ", ".join(f"{part.text} {part.remark}".strip() for part in parts)
