"""The table as lines of text, as wide as somebody's terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from pin_audit.claims import Status
from pin_audit.report.blocks import Block, Cell, Grid, Heading, Remark

_NARROWEST = 8  # that a column is made
_GAP = 2  # blanks between columns
_MARKS = {Status.CONFLICT: "✗ ", Status.IN_STEP: "✓ "}


def text_lines(blocks: Iterable[Block], width: int) -> list[str]:
    """Return blocks as lines with Unicode signs, with empty lines between them."""
    found: list[str] = []
    heading = True
    for block in blocks:
        if not heading and not found[-1].endswith(":"):
            found.append("")
        heading = isinstance(block, Heading)
        if isinstance(block, Heading):
            found += _wrapped(f"{block.text}  {block.remark}", width)
        elif isinstance(block, Grid):
            found += _grid(block, width)
        else:
            found += _remarks(block, width) if isinstance(block, list) else _wrapped(block, width)
    return found


def _remarks(remarks: Sequence[Remark], width: int) -> list[str]:
    heads = [f"{'✗' if one.grave else '!'} {one.about}" for one in remarks]
    room = max(map(len, heads)) + _GAP
    lines = []
    for head, one in zip(heads, remarks, strict=True):
        first, *rest = _wrapped(one.text, max(width - room, _NARROWEST))
        lines += [head.ljust(room) + first, *(" " * room + line for line in rest)]
    return lines


def _grid(grid: Grid, width: int) -> list[str]:
    """Lay out a table: as long as it is too wide, its widest column gives way."""
    rows = [[[head] for head in grid.heads], *([_cell(cell) for cell in row] for row in grid.rows)]
    widths = [max(len(line) for cell in column for line in cell) for column in zip(*rows, strict=True)]
    while sum(widths) + _GAP * (len(widths) - 1) > width and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    rows.insert(1, [["-" * one] for one in widths])
    lines = []
    for row in rows:
        wrapped = [
            [piece for line in cell for piece in _wrapped(line, room)]
            for cell, room in zip(row, widths, strict=True)
        ]
        for pieces in zip_longest(*wrapped, fillvalue=""):
            padded = (piece.ljust(room) for piece, room in zip(pieces, widths, strict=True))
            lines.append((" " * _GAP).join(padded).rstrip())
    return lines


def _cell(cell: Cell) -> list[str]:
    if isinstance(cell, Status):
        return [_MARKS.get(cell, "") + cell.value]
    if isinstance(cell, str):
        return [cell]
    return [f"{part.text} {part.remark}".strip() for part in cell] or [""]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]
