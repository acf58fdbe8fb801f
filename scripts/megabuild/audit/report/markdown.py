"""The table as Markdown: sorted and without line numbers of this repository, so that it changes when a value does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from megabuild.audit.claims import Row, Status
from megabuild.audit.report.cells import Part, cells, sorted_out
from megabuild.audit.report.jsonfile import Report, write
from megabuild.audit.table import Audit
from megabuild.errors import UsageError

BEGIN, END = "<!-- audit:begin -->", "<!-- audit:end -->"
_BETWEEN = re.compile(rf"(?<={BEGIN}\n)(?:.*\n)*?(?={END}$)", re.MULTILINE)
_USES = {"vendored": "compiled in", "system": "the environment's instead", "unused": "not compiled"}


def markdown(report: Report, *, level: int = 2) -> str:
    """Return a report as Markdown, with headings of some level."""
    return "\n\n".join(_audit(audit, report, "#" * level) for audit in report.audits) + "\n"


def insert(path: Path, text: str) -> bool:
    """Replace what stands between the markers of a file, and touch nothing else; says whether that changed it.

    Parameters
    ----------
    path:
        A file in UTF-8 with each marker once, alone on its line.

    Raises
    ------
    UsageError
        The file cannot be read or written, or its markers are not as they should be.
    """
    content, before = _content(path)
    end_of_line = "\r\n" if "\r\n" in content else "\n"
    lines = ["", *text.strip("\n").split("\n"), "", ""]
    if before == "\n".join(lines):
        return False
    new = _BETWEEN.sub(lambda _: "\n".join(lines), content.replace("\r\n", "\n"))
    write(new.replace("\n", end_of_line), path)
    return True


def inserted(path: Path) -> str:
    """Return what stands between the markers, without the empty lines around it; raises as `insert` does."""
    return _content(path)[1].strip("\n")


def _content(path: Path) -> tuple[str, str]:
    """Return all of a file, and what stands between its markers."""
    try:
        content = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}", "name a file with the markers") from error
    plain = content.replace("\r\n", "\n")
    marked = [line for line in plain.split("\n") if line in (BEGIN, END)]
    between = _BETWEEN.search(plain)
    if marked != [BEGIN, END] or between is None:
        raise UsageError(
            f"{path} does not have the markers of the table",
            f"put a line with {BEGIN} and after it one with {END} where the table is to stand, each once",
        )
    return content, between[0]


class _Links:
    """Addresses, each named once: cells stay short."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._labels: dict[str, str] = {}

    def cell(self, parts: Iterable[Part]) -> str:
        """Return a cell, with links to where its values were read."""
        return "<br>".join(map(self._part, parts))

    def _part(self, part: Part) -> str:
        plain = re.fullmatch(r"[\w .,;:+-]*", part.text) and "_" not in part.text
        text = part.text if plain else "`" + part.text.replace("|", "\\|").replace("`", "'") + "`"
        if part.url.startswith(("https://", "http://")):
            label = self._labels.setdefault(part.url, f"{self._package}-{len(self._labels) + 1}")
            text = f"[{text}][{label}]"
        return f"{text} {_escaped(part.remark)}".strip()

    def definitions(self) -> str:
        """Return what the labels stand for."""
        return "\n".join(
            f"[{label}]: {url.replace(' ', '%20').replace('<', '%3C').replace('>', '%3E')}"
            for url, label in self._labels.items()
        )


def _audit(audit: Audit, report: Report, mark: str) -> str:
    target, links = audit.target, _Links(audit.target.package)
    commit = f", commit `{audit.commit[:10]}`" if audit.commit else ""
    head = (
        f"What upstream's {target.version} (`{target.tag}`{commit}), this recipe and conda-forge say of each "
        f"dependency, as of {report.day.isoformat()}: {audit.counts()}."
    )
    parts = [f"{mark} {target.package} {target.version}", head]
    rows, silent, vendored = sorted_out(audit.rows)
    if rows:
        heads = ("package", "upstream", "recipe", "conda-forge", "status")
        parts.append(_table(heads, (_row(row, links) for row in rows)))
    if told := audit.told():
        lines = (f"* {_escaped(', '.join(names))}: {_escaped(text)}." for (_, text), names in told.items())
        parts.append("\n".join(lines))
    if silent:
        names = ", ".join(_escaped(row.name) for row in silent)
        parts.append(f"Asked for without a version, which nobody else names either: {names}.")
    if vendored:
        parts.append("What upstream vendors, and the recipe does not ask for:")
        heads4 = ("package", "upstream", "in this build", "conda-forge")
        parts.append(_table(heads4, (_vendored(row, links) for row in vendored)))
    if audit.archs:
        parts.append("GPU architectures:")
        heads4 = ("CUDA", "upstream", "recipes", "status")
        parts.append(_table(heads4, (_archs(row, links) for row in audit.archs)))
    if missing := [f"* {source}: {_escaped(reason)}." for source, reason in audit.unread().items()]:
        parts.append("Not read, or not wholly:\n\n" + "\n".join(missing))
    return "\n\n".join(filter(None, [*parts, links.definitions()]))


def _row(row: Row, links: _Links) -> tuple[str, ...]:
    status = (
        row.status.value if row.status in (Status.IN_STEP, Status.UNPINNED) else f"**{row.status.value}**"
    )
    return (_escaped(row.name), *map(links.cell, cells(row).values()), status)


def _vendored(row: Row, links: _Links) -> tuple[str, ...]:
    why = f" ({_escaped(row.why)})" if row.why else ""
    found = cells(row)
    upstream = links.cell(found["upstream"])
    return (_escaped(row.name), upstream, _USES[row.use] + why, links.cell(found["conda-forge"]))


def _archs(row: Row, links: _Links) -> tuple[str, ...]:
    found = cells(row)
    upstream = links.cell(found["upstream"])
    return (row.name.removeprefix("CUDA "), upstream, links.cell(found["recipe"]), row.status.value)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    lines += ["|" + "".join(f" {cell} |" if cell else " |" for cell in row) for row in rows]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Keep text from being markup, and leave out line numbers: a new comment in a script is no change of the table."""
    lineless = re.sub(r"(\.\w+):\d+", r"\1", text)
    return re.sub(r"([\\|*_<>\[\]`])", r"\\\1", lineless).replace("\n", " ")
