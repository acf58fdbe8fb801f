"""The table as Markdown: sorted and without line numbers of this repository, so that it changes when a value does."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from groundwork.errors import UsageError
from pin_audit.claims import Status
from pin_audit.report.blocks import Block, Cell, Grid, Heading, report_blocks
from pin_audit.report.cells import CellPart
from pin_audit.report.jsonfile import Report, write

BEGIN, END = "<!-- audit:begin -->", "<!-- audit:end -->"
_BETWEEN = re.compile(rf"(?<={BEGIN}\n)(?:.*\n)*?(?={END}$)", re.MULTILINE)


def markdown(report: Report, *, level: int = 2) -> str:
    """Return a report as Markdown, with headings of some level."""
    return marked_up(report_blocks(report, ages=False), level=level)


def marked_up(blocks: Iterable[Block], *, level: int = 2) -> str:
    """Return blocks as Markdown, with headings of some level."""
    links = _Links()
    parts: list[str] = []
    for block in blocks:
        if isinstance(block, Heading):
            head = f"{'#' * level} {_escaped(block.text)}"
            remark = _escaped(block.remark)
            parts += [links.begin(block.text.partition(" ")[0]), head, f"{remark[:1].upper()}{remark[1:]}."]
        elif isinstance(block, Grid):
            parts.append(_grid(block, links))
        elif isinstance(block, list):
            parts.append("\n".join(f"* {_escaped(one.about)}: {_escaped(one.text)}." for one in block))
        else:
            parts.append(_escaped(block) + ("" if block.endswith(":") else "."))
    return "\n\n".join(filter(None, [*parts, links.begin("")])) + "\n"


def insert(path: Path, text: str) -> bool:
    """Replace the text between the markers of a file; returns whether that changed it.

    Raises UsageError: The file cannot be read or written, or does not have each marker once, alone on its line.
    """
    try:
        content = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}", "name a file with the markers") from error
    plain = content.replace("\r\n", "\n")
    between = _BETWEEN.search(plain)
    if [line for line in plain.split("\n") if line in (BEGIN, END)] != [BEGIN, END] or between is None:
        raise UsageError(
            f"{path} does not have the markers of the table",
            f"put a line with {BEGIN} and after it one with {END} where the table is to stand, each once",
        )
    lines = "\n".join(["", *text.strip("\n").split("\n"), "", ""])
    if between[0] == lines:
        return False
    end_of_line = "\r\n" if "\r\n" in content else "\n"
    write(_BETWEEN.sub(lambda _: lines, plain).replace("\n", end_of_line), path)
    return True


class _Links:
    """Addresses, each named once: cells stay short."""

    def __init__(self) -> None:
        self._package = ""
        self._labels: dict[str, str] = {}

    def begin(self, package: str) -> str:
        """Return the definitions of the labels so far, and start a new package."""
        definitions = "\n".join(
            f"[{label}]: {url.replace(' ', '%20').replace('<', '%3C').replace('>', '%3E')}"
            for url, label in self._labels.items()
        )
        self._package, self._labels = package, {}
        return definitions

    def cell(self, cell: Cell) -> str:
        """Return a cell, with links to where its values were read."""
        if isinstance(cell, Status):
            return cell.value if cell in (Status.IN_STEP, Status.UNPINNED) else f"**{cell.value}**"
        return _escaped(cell) if isinstance(cell, str) else "<br>".join(map(self._part, cell))

    def _part(self, part: CellPart) -> str:
        plain = re.fullmatch(r"[\w .,;:+-]*", part.text) and "_" not in part.text
        text = part.text if plain else "`" + part.text.replace("|", "\\|").replace("`", "'") + "`"
        if part.url.startswith(("https://", "http://")):
            label = self._labels.setdefault(part.url, f"{self._package}-{len(self._labels) + 1}")
            text = f"[{text}][{label}]"
        return f"{text} {_escaped(part.remark)}".strip()


def _grid(grid: Grid, links: _Links) -> str:
    lines = [f"| {' | '.join(grid.heads)} |", "|" + "---|" * len(grid.heads)]
    for row in grid.rows:
        lines.append("|" + "".join(f" {text} |" if text else " |" for text in map(links.cell, row)))
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Keep text from being markup, and leave out line numbers: a new comment in a script does not change the table."""
    lineless = re.sub(r"(\.\w+):\d+", r"\1", text)
    return re.sub(r"([\\|*_<>\[\]`])", r"\\\1", lineless).replace("\n", " ")
