"""Small pieces of text: sizes, durations, paths, tables, and signs that the stream can show."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from groundwork.wording import plain as plain

_WIDTH = 80


@dataclass(frozen=True, kw_only=True)
class Signs:
    """Signs used in output, in what the stream's encoding has."""

    done: str
    failed: str
    kept: str
    warning: str
    dash: str
    cut: str

    @classmethod
    def of(cls, stream: IO[str]) -> Signs:
        """Return the signs for a stream: ASCII unless it says that it takes Unicode."""
        if (getattr(stream, "encoding", None) or "").lower().replace("-", "").startswith("utf"):
            return UNICODE
        return cls(done="+", failed="x", kept="=", warning="!", dash="-", cut="~")

    def in_place_of_unicode(self, text: str) -> str:
        """Return a text with these signs where it has those of :data:`UNICODE`."""
        pairs = zip(asdict(UNICODE).values(), asdict(self).values(), strict=True)
        return text.translate({ord(sign): own for sign, own in pairs})


UNICODE = Signs(done="✓", failed="✗", kept="=", warning="!", dash="-", cut="…")


def size(octets: float) -> str:
    """Return a size for people: ``812 B``, ``34.5 MB``, ``1.2 GB`` (powers of 1000)."""
    for unit in ("B", "kB", "MB"):
        if octets < 999.5:
            return f"{octets:.0f} {unit}" if unit == "B" or octets >= 99.95 else f"{octets:.1f} {unit}"
        octets /= 1000
    return f"{octets:.1f} GB"


def duration(seconds: float) -> str:
    """Return a duration for people: ``8 s``, ``3:07 min``, ``2:05 h``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"


def display(path: Path) -> str:
    """Return a path for people: relative to the current folder where that is shorter."""
    try:
        relative = str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
    return relative if len(relative) < len(str(path)) else str(path)


def table(
    heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, right: frozenset[int] = frozenset()
) -> list[str]:
    """Return the lines of a table; columns are two blanks apart, those in ``right`` (counted from 0) flush right."""
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]

    def line(row: tuple[str, ...]) -> str:
        cells = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(cells).rstrip()

    return [line(row) for row in [heads, *rows]]


def plain_lines(text: str) -> str:
    """Return lines of text, each `plain`: they may quote compilers, indexes and file systems."""
    return "\n".join(map(plain, text.split("\n")))


def wrapped(text: str, *, first: str = "", rest: str = "  ") -> list[str]:
    """Break a text into lines of at most 80 columns, between words only; the first and the others are indented."""
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


#: What a terminal may break where it likes: command lines, a path or address, rows of tables, drawings of compilers.
_UNWRAPPED = re.compile(
    r"\s*(?:[A-Z_]+=\S+ +)*(?:python3?|pip|uv|conda|micromamba|docker|podman|sudo|apt-get|bash|sh|cd|\S*/)\S* "
    r"|\s*[\w ]{1,40}: \S+$|\s*\S.*?\S {2,}\S|\s*\d* *\|"
)
#: Before a command at the end of a sentence.
_COMMAND = re.compile(r"(?<=:) (?=(?:sudo|python3|pip|megabuild|scripts/\S+) )")


def fitted(text: str, width: int) -> str:
    """Return lines of text with prose that is wider than ``width`` broken between words, and no command broken."""
    lines: list[str] = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())] + "  "
        prose, command = (
            _COMMAND.split(line, maxsplit=1) if len(line) > width and _COMMAND.search(line) else (line, "")
        )
        if len(prose) <= width or _UNWRAPPED.match(prose):
            lines.append(prose)
        else:
            lines += textwrap.wrap(
                prose, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )
        lines += [indent + command] if command else []
    return "\n".join(lines)


def picked(value: object, names: str) -> dict[str, Any]:
    """Return the attributes with these names, separated by blanks, for JSON: tuples as lists."""
    attributes = {name: getattr(value, name) for name in names.split()}
    return {
        name: list(attribute) if isinstance(attribute, tuple) else attribute
        for name, attribute in attributes.items()
    }
