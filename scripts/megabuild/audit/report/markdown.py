"""The table as Markdown: sorted and without line numbers of this repository, so that it changes when a value does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from megabuild.audit.archs import ArchRow, recipes_in_words
from megabuild.audit.case import Status
from megabuild.audit.report.cells import (
    Part,
    conda_forge,
    recipe,
    recipe_archs,
    says_nothing,
    upstream,
    upstream_archs,
)
from megabuild.audit.report.jsonfile import Report
from megabuild.audit.rows import Audit, Row, counts, told, unread

_USES = {
    "vendored": "compiled in",
    "system": "the environment's instead",
    "unused": "not compiled",
}


class _Links:
    """Addresses, each named once: cells stay short."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._labels: dict[str, str] = {}

    def to(self, url: str) -> str:
        """Return the label of an address."""
        return self._labels.setdefault(url, f"{self._package}-{len(self._labels) + 1}")

    def definitions(self) -> str:
        """Return what the labels stand for."""
        return "\n".join(
            f"[{label}]: {url.replace(' ', '%20').replace('<', '%3C').replace('>', '%3E')}"
            for url, label in self._labels.items()
        )


def markdown(report: Report, *, level: int = 2) -> str:
    """Return a report as Markdown.

    Parameters
    ----------
    report:
        What was found.
    level:
        Of the headings.
    """
    return "\n\n".join(_audit(audit, report, "#" * level) for audit in report.audits) + "\n"


def _audit(audit: Audit, report: Report, mark: str) -> str:
    target = audit.target
    commit = f", commit `{audit.commit[:10]}`" if audit.commit else ""
    links = _Links(target.package)
    parts = [
        f"{mark} {target.package} {target.version}",
        (
            f"What upstream's {target.version} (`{target.tag}`{commit}), this recipe and conda-forge say of each "
            f"dependency, as of {report.day.isoformat()}: {counts(audit)}."
        ),
    ]
    rows = [row for row in audit.rows if not row.vendored_only and not says_nothing(row)]
    if rows:
        heads = ("package", "upstream", "recipe", "conda-forge", "status")
        parts.append(_table(heads, (_row(row, links) for row in rows)))
    lines = [
        f"* {_escaped(', '.join(names))}: {_escaped(sentence)}."
        for (_, sentence), names in told(audit).items()
    ]
    if lines:
        parts.append("\n".join(lines))
    silent = [_escaped(row.name) for row in audit.rows if not row.vendored_only and says_nothing(row)]
    if silent:
        parts.append(f"Asked for without a version, which nobody else names either: {', '.join(silent)}.")
    vendored = [row for row in audit.rows if row.vendored_only]
    if vendored:
        parts.append("What upstream vendors, and the recipe does not ask for:")
        heads4 = ("package", "upstream", "in this build", "conda-forge")
        parts.append(_table(heads4, (_vendored(row, links) for row in vendored)))
    if audit.archs:
        parts.append("GPU architectures:")
        parts.append(
            _table(("CUDA", "upstream", "recipes", "status"), (_archs(row, links) for row in audit.archs))
        )
    missing = [f"* {source}: {_escaped(reason)}." for source, reason in unread(audit).items()]
    if missing:
        parts.append("Not read, or not wholly:\n\n" + "\n".join(missing))
    if definitions := links.definitions():
        parts.append(definitions)
    return "\n\n".join(parts)


def _row(row: Row, links: _Links) -> tuple[str, ...]:
    return (
        _escaped(row.name),
        _cell(upstream(row), links),
        _cell(recipe(row), links),
        _cell(conda_forge(row), links),
        row.status.value if row.status in (Status.IN_STEP, Status.UNPINNED) else f"**{row.status.value}**",
    )


def _vendored(row: Row, links: _Links) -> tuple[str, ...]:
    why = f" ({_escaped(_lineless(row.why))})" if row.why else ""
    return (
        _escaped(row.name),
        _cell(upstream(row), links),
        _USES[row.use] + why,
        _cell(conda_forge(row), links),
    )


def _archs(row: ArchRow, links: _Links) -> tuple[str, ...]:
    recipes = [
        _escaped(f"{archs} ({recipes_in_words(names, row)})") for archs, names in recipe_archs(row).items()
    ]
    return (row.cuda, _cell(upstream_archs(row), links), "<br>".join(recipes), row.status.value)


def _cell(parts: Iterable[Part], links: _Links) -> str:
    return "<br>".join(_part(part, links) for part in parts)


def _part(part: Part, links: _Links) -> str:
    plain = re.fullmatch(r"[\w .,;:+-]*", part.text) and "_" not in part.text
    text = part.text if plain else "`" + part.text.replace("|", "\\|").replace("`", "'") + "`"
    if part.url.startswith(("https://", "http://")):
        text = f"[{text}][{links.to(part.url)}]"
    return f"{text} {_escaped(part.remark)}".strip()


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    lines += ["|" + "".join(f" {cell} |" if cell else " |" for cell in row) for row in rows]
    return "\n".join(lines)


def _lineless(text: str) -> str:
    """Leave out line numbers: a comment added to a script is no change of the table."""
    return re.sub(r"(\.\w+):\d+", r"\1", text)


def _escaped(text: str) -> str:
    return re.sub(r"([\\|*_<>\[\]`])", r"\\\1", _lineless(text)).replace("\n", " ")
