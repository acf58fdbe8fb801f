"""Folds lines for people at words to the width of their terminal; commands, which users copy, stay whole."""

from __future__ import annotations

import contextlib
import os
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

_NARROWEST = 40
_USUAL = 80
#: Columns that continuation lines keep for text; a table's last column that leaves fewer is no indent for them.
_LEAST_TEXT = 25
#: The gap before a table's column.
_GAP = re.compile(r"(?<=\S) {2,}(?=\S)")
#: Start of a command in a sentence: it follows "run:", or it is a program with a word that no prose has after it.
_START = re.compile(
    r"(?<=\brun: )(?! )|(?<=\brun:  )"
    r"|(?<![^\s(])(?:[A-Z][A-Z0-9_]*=\S+ )*(?:"
    r"sudo \w|su -c |apt-get (?:install|update)"
    r"|(?:\S*/)?python[0-9.]* (?:-[mc] |build-locally|\S*/)"
    r"|(?:\S*/)?pip (?:install|config|download) |uvx? (?:pip|python|tool|--from) |pyenv install "
    r"|(?:scripts/|\./)[\w-]+ (?:-|[a-z-]+ ?)"
    r"|(?:megabuild )(?:audit|build|clean|configs|env|install-pyg|sizes|slim|status|upload|verify|wheels)\b"
    r"|git (?:checkout|clone) )"
)
#: A command's text; quoted parts may hold any sign. It ends before a comma, a semicolon or a bracket of the sentence.
_COMMAND = re.compile(r"(?:'[^']*'|\"[^\"]*\"|(?![,;)]+(?:\s|$))[^'\"]|['\"])+")
#: Punctuation around a command, which its own line replaces.
_BEFORE = re.compile(r" ?\($")
_AFTER = re.compile(r"^[,;)]+ ?")


@dataclass(frozen=True, kw_only=True)
class _Part:
    text: str
    is_command: bool


def terminal_width(stream: IO[str], environ: Mapping[str, str]) -> int | None:
    """Return the number of columns to fold lines to, at least 40; None if the stream is no terminal.

    ``COLUMNS`` overrides the terminal's width; with ``TERM=dumb``, which may report any width, the default is 80.
    """
    columns = 0
    with contextlib.suppress(OSError, ValueError):  # closed, or no file
        if not stream.isatty():
            return None
        if environ.get("TERM") != "dumb":
            columns = os.get_terminal_size(stream.fileno()).columns
    given = environ.get("COLUMNS", "")
    if given.isdecimal():
        columns = int(given) or columns
    return max(_NARROWEST, columns or _USUAL)


def folded(text: str, stream: IO[str]) -> str:
    """Return text with its lines folded if the stream is a terminal, else as it is."""
    width = terminal_width(stream, os.environ)
    if width is None:
        return text
    parts: list[str] = []
    for line in text.split("\n"):
        parts += fold(line, width)
    return "\n".join(parts)


def fold(line: str, width: int) -> list[str]:
    """Break a line that is wider than ``width`` at words; its commands get lines of their own, however long.

    A word wider than the width, such as a path, stays whole, too.
    """
    if len(line) <= width:
        return [line]
    margin = " " * (len(line) - len(line.lstrip()))
    rest = _continuation_indent(line, margin, width)
    indent = margin
    lines: list[str] = []
    for part in _parts(line.strip()):
        if part.is_command:
            lines.append(f"{indent}{part.text}")
        else:
            lines += _wrap(part.text, width, first=indent, rest=rest)
        indent = rest
    return lines


def _wrap(text: str, width: int, *, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
        expand_tabs=False,
        replace_whitespace=False,
    )


def _continuation_indent(line: str, margin: str, width: int) -> str:
    """Return the start of a table's last column if enough text fits there, else some blanks more than the line has."""
    gaps = [match.end() for match in _GAP.finditer(line)]
    if not gaps:
        return f"{margin}  "
    if gaps[-1] <= width - _LEAST_TEXT:
        return " " * gaps[-1]
    return f"{margin}    "


def _parts(line: str) -> list[_Part]:
    """Split a line into prose and commands."""
    parts: list[_Part] = []
    position = 0
    while start := _START.search(line, position):
        command = _COMMAND.match(line, start.start())
        if command is None:
            break
        parts += _prose(_BEFORE.sub("", line[position : start.start()]))
        parts.append(_Part(text=command[0].rstrip(), is_command=True))
        position = command.end()
    if not parts:
        return [_Part(text=line, is_command=False)]
    return parts + _prose(line[position:])


def _prose(text: str) -> list[_Part]:
    """Return the text before or after a command without the signs between them; none of blanks alone."""
    text = _AFTER.sub("", text)
    if not text.strip():
        return []
    return [_Part(text=text, is_command=False)]
