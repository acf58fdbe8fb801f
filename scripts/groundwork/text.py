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

    done, failed, kept, warning, dash = "✓", "✗", "=", "!", "-"


_ASCII = str.maketrans({"✓": "+", "✗": "x", "…": "~"})


def printable(text: str, stream: IO[str]) -> str:
    """Return text with every line `plain`; signs are ASCII unless the stream's encoding is Unicode."""
    unicode = (getattr(stream, "encoding", None) or "").lower().replace("-", "").startswith("utf")
    return plain_lines(text if unicode else text.translate(_ASCII))


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 wheel``, ``7 wheels``, ``2 processes``."""
    plural = f"{noun}{'es' if noun.endswith('s') else 's'}"
    return f"{count} {noun if count == 1 else plural}"


def size(octets: float) -> str:
    """Format a size: ``812 B``, ``34.5 MB``, ``1.2 GB`` (powers of 1000)."""
    for unit in ("B", "kB", "MB"):
        if octets < 999.5:
            return f"{octets:.0f} {unit}" if unit == "B" or octets >= 99.95 else f"{octets:.1f} {unit}"
        octets /= 1000
    return f"{octets:.1f} GB"


def duration(seconds: float) -> str:
    """Format a duration: ``8 s``, ``3:07 min``, ``2:05 h``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    parts, unit = (whole, "min") if whole < 3600 else (whole // 60, "h")
    return f"{parts // 60}:{parts % 60:02} {unit}"


def display(path: Path) -> str:
    """Return a path, relative to the current folder if that is shorter."""
    relative = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return min(str(path), str(relative), key=len)


def table(
    heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, right: frozenset[int] = frozenset()
) -> list[str]:
    """Return the lines of a table, columns two blanks apart; columns in ``right`` (from 0) are aligned right."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [heads, *rows]
    ]


def plain(text: str) -> str:
    """Return untrusted text on one line, without terminal control and bidirectional characters."""
    without = _STYLE.sub("", text)
    return _STEERING.sub(lambda match: "?" if match[0].strip("\t\n\r ") else " ", without)


def plain_lines(text: str) -> str:
    """Return text with every line `plain`: it may quote compilers, indexes and file systems."""
    return "\n".join(map(plain, text.split("\n")))


def suggest(word: str, names: Iterable[str]) -> str:
    """Return a hint for an unknown word: ``did you mean scatter?``, else the list of names."""
    known = list(names)
    close = get_close_matches(word.lower(), known, n=2)
    return f"did you mean {' or '.join(close)}?" if close else f"choose from {', '.join(known)}"


def to_dict(value: object, names: str) -> dict[str, Any]:
    """Return attributes for JSON, tuples as lists; ``names`` are separated by blanks."""
    attributes = {name: getattr(value, name) for name in names.split()}
    return {name: list(item) if isinstance(item, tuple) else item for name, item in attributes.items()}
