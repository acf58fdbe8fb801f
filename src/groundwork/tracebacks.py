"""Finds the exception in tracebacks of Python, pytest and unittest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from groundwork.error_patterns import ErrorKind
from groundwork.error_report import (
    BEFORE,
    MOST_LINES,
    FirstError,
    Place,
    cut_all,
    find_line,
    place_in,
    printed,
    text_below,
    whole_message,
)

#: A frame's place; Python's own frozen modules have no file.
FRAME = re.compile(r'^\s*File "(?P<file>(?!<frozen )[^"]+)", line (?P<line>\d+)')
_TRACEBACK = re.compile(r"^(?:\S+: )?Traceback \(most recent call last\):")
_CHAINED = re.compile(r"The above exception was the direct")
_UNINDENTED = re.compile(r"\S")
#: unittest's title above each failed test's traceback, between two rules.
_UNITTEST = re.compile(r"^(?:ERROR|FAIL): \w+ \(")
_RULE = re.compile(r"^={70}$")
#: A group of exceptions, whose own line only counts the others, and an exception in it that is no group.
_GROUP = re.compile(r"^\s*(?:Base)?ExceptionGroup: ")
_MEMBER = re.compile(r"^(?!(?:Base)?ExceptionGroup: )(?:\w+\.)*[A-Z]\w*(?:: |$)")


def read_traceback(lines: Sequence[str]) -> FirstError:
    """Return the error of the last traceback, or of its first cause if it is chained; of unittest the first."""
    lines = _first_of_unittest(lines)
    start = _first_cause(lines)
    end = find_line(lines, _UNINDENTED.match, start + 1)
    if end is None:
        end = len(lines) - 1
    place = _last_frame(lines[start:end])
    if _GROUP.match(lines[end]):
        end = find_line(lines, _MEMBER.match, end + 1) or end
    shown = [*lines[start : end + 1], *text_below(lines, end)]
    if len(shown) > MOST_LINES:
        shown = [shown[0], "  …", *shown[2 - MOST_LINES :]]
    above = printed(lines[max(0, start - BEFORE) : start])
    return FirstError(
        kind=ErrorKind.PYTHON,
        message=whole_message(lines, end, lines[end]),
        file=place.file,
        line=place.line,
        excerpt=cut_all([*above, *shown]),
    )


def _first_of_unittest(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines of the first failed test of unittest, which prints one traceback for each."""
    start = find_line(lines, _UNITTEST.match)
    if start is None:
        return lines
    below = takewhile(lambda line: not _RULE.match(line), lines[start + 1 :])
    section = [lines[start], *below]
    if find_line(section, _TRACEBACK.match) is None:  # another program's title
        return lines
    return section


def _first_cause(lines: Sequence[str]) -> int:
    """Return where the last traceback starts; of chained ones the first."""
    began = [number for number, line in enumerate(lines) if _TRACEBACK.match(line)]
    start = began.pop()
    while began and find_line(lines[:start], _CHAINED.match, began[-1]) is not None:
        start = began.pop()
    return start


def _last_frame(lines: Sequence[str]) -> Place:
    for line in reversed(lines):
        match = FRAME.match(line)
        if match is not None:
            return place_in(match)
    return Place()
