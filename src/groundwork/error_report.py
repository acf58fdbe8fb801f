"""An error as a tool reported it, and the texts that it is made of; each is truncated."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from groundwork.error_patterns import ErrorKind

#: Lines of an excerpt: above a message, below it, and at most.
BEFORE = 3
AFTER = 8
MOST_LINES = 14
#: Characters of a line of an excerpt, and of a message.
WIDTH = 240
LONGEST_MESSAGE = 300


@dataclass(frozen=True, kw_only=True)
class FirstError:
    """An error as a tool reported it."""

    kind: ErrorKind
    message: str  #: the tool's text without file and line: ``error: 'x' was not declared``
    file: str = ""  #: as the tool printed it
    line: int = 0  #: 0 if unknown
    excerpt: tuple[str, ...] = ()  #: the message and a few lines around it
    command: str = ""  #: of the failed step; may be long
    outputs: str = ""  #: of ninja's failed step

    @property
    def headline(self) -> str:
        """``c10/cuda/CUDAFunctions.cpp:2: error: …``."""
        place = self.file
        if self.file and self.line:
            place = f"{self.file}:{self.line}"
        return ": ".join(filter(None, (place, self.message)))


@dataclass(frozen=True, kw_only=True)
class Place:
    """The file and line of an error, as far as they are known."""

    file: str = ""
    line: int = 0


def place_in(match: re.Match[str]) -> Place:
    """Return the place in the groups ``file`` and ``line`` of a match, as far as it has them."""
    named = match.groupdict()
    return Place(file=named.get("file") or "", line=int(named.get("line") or 0))


def whole_message(lines: Sequence[str], at: int, message: str) -> str:
    """Return a message as one line; an exception's text may begin on the next line."""
    if not message:
        return ""
    start = ""
    if lines[at].startswith("E "):
        start = "E "
    parts = [message]
    for line in text_below(lines, at, start):
        parts.append(line.removeprefix(start))
    return joined(parts)


def text_below(lines: Sequence[str], at: int, start: str = "") -> list[str]:
    """Return the lines below an exception that has no text of its own."""
    if not lines[at].rstrip().endswith(":"):
        return []
    near = lines[at + 1 : at + AFTER]
    return list(takewhile(lambda line: line.strip() and line.startswith(start), near))


def find_line(lines: Sequence[str], fits: Callable[[str], object], begin: int = 0) -> int | None:
    """Return the number of the first line that fits, from ``begin`` on."""
    for number in range(begin, len(lines)):
        if fits(lines[number]):
            return number
    return None


def printed(lines: Iterable[str]) -> list[str]:
    """Return the lines that are not blank."""
    return [line for line in lines if line.strip()]


def joined(lines: Iterable[str]) -> str:
    """Return lines as one, without repeated blanks."""
    words = " ".join(lines).split()
    return cut(" ".join(words), LONGEST_MESSAGE)


def cut_all(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the lines of an excerpt, each truncated."""
    return tuple(cut(line) for line in lines)


def cut(line: str, width: int = WIDTH) -> str:
    """Return a text of at most ``width`` characters; an ellipsis follows if more were there."""
    if len(line) <= width:
        return line
    return f"{line[:width]}…"
