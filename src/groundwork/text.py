"""Formats text for people: counts, sizes, durations, paths, tables, untrusted text, and signs in ASCII or Unicode."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any

#: Control characters (C0, DEL, C1), line and paragraph separators, characters that change the direction of writing,
#: and undecodable bytes.
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
#: Terminal sequences of compilers and build tools: colours, erased lines, links.
_STYLE = re.compile("\x1b\\[[0-9;]*[mK]|\x1b\\]8;[^\x07\x1b]*(?:\x07|\x1b\\\\)")


class Sign:
    """Signs used in output; :func:`printable` replaces them on an ASCII stream."""

    done = "✓"
    failed = "✗"
    kept = "="
    warning = "!"
    dash = "-"


_ASCII = str.maketrans({"✓": "+", "✗": "x", "…": "~"})


def printable(text: str, stream: IO[str]) -> str:
    """Return text with every line `plain`; signs are ASCII unless the stream's encoding is Unicode."""
    encoding = getattr(stream, "encoding", None) or ""
    if not encoding.lower().startswith("utf"):
        text = text.translate(_ASCII)
    return plain_lines(text)


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 wheel``, ``7 wheels``, ``2 processes``."""
    if count == 1:
        return f"{count} {noun}"
    if noun.endswith("s"):
        return f"{count} {noun}es"
    return f"{count} {noun}s"


def size(octets: float) -> str:
    """Format a size: ``812 B``, ``34.5 MB``, ``1.2 GB`` (powers of 1000)."""
    if octets < 999.5:
        return f"{octets:.0f} B"
    for unit in ("kB", "MB"):
        octets /= 1000
        if octets < 99.95:
            return f"{octets:.1f} {unit}"
        if octets < 999.5:
            return f"{octets:.0f} {unit}"
    return f"{octets / 1000:.1f} GB"


def duration(seconds: float) -> str:
    """Format a duration: ``8 s``, ``3:07 min``, ``2:05 h``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes}:{whole % 60:02} min"
    return f"{minutes // 60}:{minutes % 60:02} h"


def display(path: Path) -> str:
    """Return a path, relative to the current folder if that is shorter."""
    here = Path.cwd()
    if not path.is_relative_to(here):
        return str(path)
    relative = path.relative_to(here)
    return min(str(path), str(relative), key=len)


def table(
    heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, right: frozenset[int] = frozenset()
) -> list[str]:
    """Return the lines of a table, columns two blanks apart; columns in ``right`` (from 0) are aligned right."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines: list[str] = []
    for row in (heads, *rows):
        cells: list[str] = []
        for column, width in enumerate(widths):
            if column in right:
                cells.append(row[column].rjust(width))
            else:
                cells.append(row[column].ljust(width))
        lines.append("  ".join(cells).rstrip())
    return lines


def plain(text: str) -> str:
    """Return untrusted text on one line, without terminal control and bidirectional characters."""
    return _STEERING.sub(_harmless, _STYLE.sub("", text))


def _harmless(steering: re.Match[str]) -> str:
    """Return a blank for white space, and a question mark for other characters."""
    if steering[0].strip("\t\n\r "):
        return "?"
    return " "


def plain_lines(text: str) -> str:
    """Return text with every line `plain`: it may quote compilers, indexes and file systems."""
    return "\n".join(map(plain, text.split("\n")))


def suggest(word: str, names: Iterable[str]) -> str:
    """Return a hint for an unknown word: ``did you mean scatter?``, else the list of names."""
    known = list(names)
    close = get_close_matches(word.lower(), known, n=2)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"choose from {', '.join(known)}"


def to_dict(value: object, names: str) -> dict[str, Any]:
    """Return attributes for JSON, tuples as lists; ``names`` are separated by blanks."""
    attributes: dict[str, Any] = {}
    for name in names.split():
        item = getattr(value, name)
        if isinstance(item, tuple):
            item = list(item)
        attributes[name] = item
    return attributes
