"""Finds the first real error in the lines that a build script or test printed.

The lines are untrusted: no command in them is run, no file opened, and every kept text is truncated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from groundwork.error_patterns import CERTAIN, SUMMARIES, WEAK, ErrorKind, ErrorPattern, Strength
from groundwork.error_report import (
    AFTER,
    BEFORE,
    LONGEST_MESSAGE,
    MOST_LINES,
    WIDTH,
    FirstError,
    Place,
    cut,
    cut_all,
    find_line,
    joined,
    place_in,
    printed,
    whole_message,
)
from groundwork.failed_step import FailedStep, find_failed_step
from groundwork.tracebacks import FRAME, read_traceback

#: Lines above a message in which its file may be named.
_ABOVE = 6
#: Lines below an error in which its file may be named.
_BELOW = 39

#: Lines near an error that name its file: of Python, pytest, a shell, Rust, patch.
_PLACES = (
    FRAME,
    re.compile(r"^(?P<file>[^\s:]+\.py):(?P<line>\d+)(?:: |$)"),
    re.compile(r"^(?P<file>\S+): line (?P<line>\d+): "),
    re.compile(r"^\s*--> (?P<file>[^:]+):(?P<line>\d+)"),
    re.compile(r"^patching file (?P<file>\S+)"),
)
#: The start of a compiler's error that CMake quotes, and lines below that end its text.
_QUOTED = re.compile(
    r"[^\s:]+:\d+:(?:\d+:)? (?:fatal |internal )?error:|\S*(?:cc|\+\+|clang)\S*: (?:fatal )?error: "
)
_QUOTE_ENDS = re.compile(r"\d* *\||[^\s:]+:\d+:|gmake|make|ninja: ")
#: Lines below CMake's first line that belong to its report.
_CMAKE_BELOW = re.compile(r"\s|$|Call Stack")
#: Lines of that report that are not of the message.
_CMAKE_ENDS = re.compile(r"Call Stack|This (?:error|warning) is for project developers")
#: A traceback that does not end the program.
_HARMLESS = re.compile(
    r"^(?:(?:Exception (?:ignored|in thread)|--- Logging error|Error in ).*\n)+(?:(?: |Traceback).*\n)*.*\n",
    re.MULTILINE,
)
#: Lines that explain no failure.
_ASIDE = re.compile(
    r"^\s*$|(?i:\bwarning\b)|\bnote: |^\s*(?:\d* *\||\^|~)|^In file included|^compilation terminated|^collect2: error: "
    r"|^make(?:\[\d+\])?: |^ninja: build stopped|use the --help option|: in function |^\++ |^Errors while running CTest"
)
#: Signs of uv before a line that continues a message.
_NEXT_LINE_START = re.compile(r"^\s*(?:╰─▶ |cause: )?")


def first_error(lines: Sequence[str]) -> FirstError | None:
    """Return the error of the first step that failed, else the first error of any tool, else None.

    Within a step, the first error of the strongest form counts, of the weakest form the last. A failed step without a
    known error is reported by its last words, or by its command.
    """
    step = find_failed_step(lines)
    error = _error_in(step.lines)
    if step.known:
        return replace(error or _last_words(step), command=step.command, outputs=step.outputs)
    if error is None and step.traced:
        return _of_traced_command(step)
    return error


def _last_words(step: FailedStep) -> FirstError:
    """Return the last line that may explain a failure, of a step without a known error."""
    relevant = _explaining(step.lines) or step.lines
    if not relevant:
        name = step.outputs.partition(" ")[0] or step.command
        message = f"{name}: failed without output"
        return FirstError(kind=ErrorKind.OTHER, message=cut(message), excerpt=cut_all([step.command]))
    excerpt = cut_all(step.lines[-AFTER:])
    return FirstError(kind=ErrorKind.OTHER, message=cut(relevant[-1]), excerpt=excerpt)


def _of_traced_command(step: FailedStep) -> FirstError:
    """Return the error of a traced command that reports none; if it is silent, a certain one of an earlier command."""
    command = f"+ {step.command}"
    if _explaining(step.lines):
        excerpt = [command, *printed(step.lines)[-AFTER:]]
    else:
        earlier = _certain_error(step.earlier)
        if earlier is not None:
            return earlier
        excerpt = [*step.earlier[1 - MOST_LINES :], command]
    message = cut(f"failed: {step.command}", LONGEST_MESSAGE)
    return FirstError(kind=ErrorKind.SHELL, message=message, excerpt=cut_all(excerpt), command=step.command)


def _error_in(lines: Sequence[str]) -> FirstError | None:
    """Return the error; a traceback that did not end its program counts only if there is no other error."""
    text = "".join(f"{line[: 10 * WIDTH]}\n" for line in lines)
    harmful = _HARMLESS.sub("", text)
    error = _reported(harmful.split("\n")[:-1])
    if error is None and harmful != text:
        return _reported(text.split("\n")[:-1])
    return error


def _reported(lines: Sequence[str]) -> FirstError | None:
    return _certain_error(lines) or _last_of(WEAK, lines) or _last_of(SUMMARIES, lines)


def _certain_error(lines: Sequence[str]) -> FirstError | None:
    for pattern in CERTAIN:
        for at in range(len(lines)):
            match = _match(pattern, lines, at)
            if match is not None:
                return _error_of(pattern, match, lines, at)
    return None


def _last_of(patterns: Sequence[ErrorPattern], lines: Sequence[str]) -> FirstError | None:
    """Return the last match; a message that ends with a colon is continued by the next line."""
    for last in reversed(range(len(lines))):
        for pattern in patterns:
            match = _match(pattern, lines, last)
            if match is None:
                continue
            first = last
            while first and lines[first - 1].rstrip().endswith(":"):
                before = _match(pattern, lines, first - 1)
                if before is None:
                    break
                match = before
                first -= 1
            return _error_of(pattern, match, lines, first)
    return None


def _match(pattern: ErrorPattern, lines: Sequence[str], at: int) -> re.Match[str] | None:
    match = pattern.match.match(lines[at])
    if match is None:
        return None
    if pattern.below and not re.match(pattern.below, _next_line(lines, at)):
        return None
    if pattern.above and _place_above(pattern, lines, at) is None:
        return None
    return match


def _next_line(lines: Sequence[str], at: int) -> str:
    """Return the next line that is not blank, or an empty one."""
    following = find_line(lines, str.strip, at + 1)
    if following is None:
        return ""
    return lines[following]


def _error_of(pattern: ErrorPattern, match: re.Match[str], lines: Sequence[str], at: int) -> FirstError:
    message = match["message"]
    if pattern.kind is ErrorKind.PYTHON and not message:
        return read_traceback(lines)
    place = _place_of(pattern, match, lines, at)
    if pattern.kind is ErrorKind.CMAKE:
        return _cmake(lines, at, whole_message(lines, at, message), place)
    return FirstError(
        kind=pattern.kind,
        message=_message_of(pattern, message, lines, at),
        file=place.file,
        line=place.line,
        excerpt=cut_all(lines[max(0, at - BEFORE) : at + AFTER + 1]),
    )


def _place_of(pattern: ErrorPattern, match: re.Match[str], lines: Sequence[str], at: int) -> Place:
    """Return the place that an error or another line near it names."""
    if pattern.above:
        above = _place_above(pattern, lines, at)
        if above is not None:
            return above
    place = place_in(match)
    if not place.file and _has_place_nearby(pattern, match["message"]):
        return _nearest_place(lines, at)
    return place


def _place_above(pattern: ErrorPattern, lines: Sequence[str], at: int) -> Place | None:
    for line in reversed(lines[max(0, at - _ABOVE) : at]):
        match = re.match(pattern.above, line)
        if match is not None:
            return place_in(match)
    return None


def _has_place_nearby(pattern: ErrorPattern, message: str) -> bool:
    """Return whether another line may name the place of an error that names none."""
    if pattern.kind in (ErrorKind.LINKER, ErrorKind.CMAKE) or pattern.joins:
        return False
    return pattern.strength is Strength.CERTAIN and not message.startswith("ninja: ")


def _nearest_place(lines: Sequence[str], at: int) -> Place:
    """Return the nearest file and line, but no library's, of an error that names none."""
    below = lines[at + 1 : at + 1 + _BELOW]
    above = reversed(lines[max(0, at - MOST_LINES) : at])
    for line in (*below, *above):
        if "/lib/python" in line:
            continue
        for pattern in _PLACES:
            match = pattern.match(line)
            if match is not None:
                return place_in(match)
    return Place()


def _message_of(pattern: ErrorPattern, message: str, lines: Sequence[str], at: int) -> str:
    """Return a message with the next line if that belongs to it."""
    following = _next_line(lines, at)
    if pattern.joins:
        joined = _NEXT_LINE_START.sub("", following).strip()
        return cut(f"{message.rstrip(':')}: {joined}", LONGEST_MESSAGE)
    message = whole_message(lines, at, message)
    below = following.strip()
    if below.startswith("what():"):
        return cut(f"{message}: {below}", LONGEST_MESSAGE)
    return message


def _cmake(lines: Sequence[str], at: int, message: str, place: Place) -> FirstError:
    """Return CMake's error with the indented paragraph below its first line."""
    following = lines[at + 1 :]
    if place.file:
        below = list(takewhile(_CMAKE_BELOW.match, following))
        quoted = _quoted_error(below)
        if quoted is not None:
            return quoted
    else:  # a text without a place may go on in the first column
        below = list(takewhile(str.strip, following))
    message = message or joined(_cmake_text(below))
    return FirstError(
        kind=ErrorKind.CMAKE,
        message=cut(f"CMake Error: {message}", LONGEST_MESSAGE),
        file=place.file,
        line=place.line,
        excerpt=cut_all(printed([lines[at], *below])[:MOST_LINES]),
    )


def _cmake_text(lines: Sequence[str]) -> Iterator[str]:
    """Yield a message's first paragraph, and the next one if the first ends with a colon."""
    text = list(takewhile(lambda line: not _CMAKE_ENDS.match(line), lines))
    first = list(takewhile(str.strip, text))
    yield from first
    if first and first[-1].rstrip().endswith(":"):
        yield from takewhile(str.strip, text[len(first) + 1 :])


def _quoted_error(lines: Sequence[str]) -> FirstError | None:
    """Return the compiler's error that CMake quotes, wrapped, where its test of a compiler failed."""
    texts = [line.strip() for line in lines]
    start = find_line(texts, _QUOTED.match)
    if start is None:
        return None
    below = takewhile(lambda text: text and not _QUOTE_ENDS.match(text), texts[start + 1 : start + AFTER])
    return _reported([" ".join([texts[start], *below])])


def _explaining(lines: Iterable[str]) -> list[str]:
    """Return the lines that may explain a failure."""
    return [line for line in lines if not _ASIDE.search(line)]
