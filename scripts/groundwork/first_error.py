"""Finds the first real error in the lines that a build script or test printed.

The lines are untrusted: no command in them is run, no file opened, and every kept text is truncated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from groundwork.error_patterns import CERTAIN, SUMMARIES, WEAK, ErrorKind, ErrorPattern, Strength
from groundwork.failed_step import FailedStep, find_failed_step

#: Lines of an excerpt: above a message, below it, and at most.
_BEFORE = 3
_AFTER = 8
_MOST_LINES = 14
#: Characters of a line of an excerpt, and of a message.
_WIDTH = 240
_LONGEST_MESSAGE = 300
#: Lines above a message in which its file may be named.
_ABOVE = 6
#: Lines below an error in which its file may be named.
_BELOW = 39

#: Lines near an error that name its file: of Python, pytest, a shell, Rust, patch.
_FRAME = re.compile(r'^\s*File "(?P<file>(?!<frozen )[^"]+)", line (?P<line>\d+)')
_PLACES = (
    _FRAME,
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
_TRACEBACK = re.compile(r"^(?:\S+: )?Traceback \(most recent call last\):")
_CHAINED = re.compile(r"The above exception was the direct")
_UNINDENTED = re.compile(r"\S")
#: unittest's title above each failed test's traceback, between two rules.
_UNITTEST = re.compile(r"^(?:ERROR|FAIL): \w+ \(")
_RULE = re.compile(r"^={70}$")
#: A group of exceptions, whose own line only counts the others, and an exception in it that is no group.
_GROUP = re.compile(r"^\s*(?:Base)?ExceptionGroup: ")
_MEMBER = re.compile(r"^(?!(?:Base)?ExceptionGroup: )(?:\w+\.)*[A-Z]\w*(?:: |$)")


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
class _Place:
    """The file and line of an error, as far as they are known."""

    file: str = ""
    line: int = 0


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
        return FirstError(kind=ErrorKind.other, message=_cut(message), excerpt=_excerpt([step.command]))
    excerpt = _excerpt(step.lines[-_AFTER:])
    return FirstError(kind=ErrorKind.other, message=_cut(relevant[-1]), excerpt=excerpt)


def _of_traced_command(step: FailedStep) -> FirstError:
    """Return the error of a traced command that reports none; if it is silent, a certain one of an earlier command."""
    command = f"+ {step.command}"
    if _explaining(step.lines):
        excerpt = [command, *_printed(step.lines)[-_AFTER:]]
    else:
        earlier = _certain_error(step.earlier)
        if earlier is not None:
            return earlier
        excerpt = [*step.earlier[1 - _MOST_LINES :], command]
    message = _cut(f"failed: {step.command}", _LONGEST_MESSAGE)
    return FirstError(kind=ErrorKind.shell, message=message, excerpt=_excerpt(excerpt), command=step.command)


def _error_in(lines: Sequence[str]) -> FirstError | None:
    """Return the error; a traceback that did not end its program counts only if there is no other error."""
    text = "".join(f"{line[: 10 * _WIDTH]}\n" for line in lines)
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
    following = _find(lines, str.strip, at + 1)
    if following is None:
        return ""
    return lines[following]


def _error_of(pattern: ErrorPattern, match: re.Match[str], lines: Sequence[str], at: int) -> FirstError:
    message = match["message"]
    if pattern.kind is ErrorKind.python and not message:
        return _traceback(lines)
    place = _place_of(pattern, match, lines, at)
    if pattern.kind is ErrorKind.cmake:
        return _cmake(lines, at, _whole_message(lines, at, message), place)
    return FirstError(
        kind=pattern.kind,
        message=_message_of(pattern, message, lines, at),
        file=place.file,
        line=place.line,
        excerpt=_excerpt(lines[max(0, at - _BEFORE) : at + _AFTER + 1]),
    )


def _place_of(pattern: ErrorPattern, match: re.Match[str], lines: Sequence[str], at: int) -> _Place:
    """Return the place that an error or another line near it names."""
    if pattern.above:
        above = _place_above(pattern, lines, at)
        if above is not None:
            return above
    place = _place_in(match)
    if not place.file and _has_place_nearby(pattern, match["message"]):
        return _nearest_place(lines, at)
    return place


def _place_in(match: re.Match[str]) -> _Place:
    named = match.groupdict()
    return _Place(file=named.get("file") or "", line=int(named.get("line") or 0))


def _place_above(pattern: ErrorPattern, lines: Sequence[str], at: int) -> _Place | None:
    for line in reversed(lines[max(0, at - _ABOVE) : at]):
        match = re.match(pattern.above, line)
        if match is not None:
            return _place_in(match)
    return None


def _has_place_nearby(pattern: ErrorPattern, message: str) -> bool:
    """Return whether another line may name the place of an error that names none."""
    if pattern.kind in (ErrorKind.linker, ErrorKind.cmake) or pattern.joins:
        return False
    return pattern.strength is Strength.certain and not message.startswith("ninja: ")


def _nearest_place(lines: Sequence[str], at: int) -> _Place:
    """Return the nearest file and line, but no library's, of an error that names none."""
    below = lines[at + 1 : at + 1 + _BELOW]
    above = reversed(lines[max(0, at - _MOST_LINES) : at])
    for line in (*below, *above):
        if "/lib/python" in line:
            continue
        for pattern in _PLACES:
            match = pattern.match(line)
            if match is not None:
                return _place_in(match)
    return _Place()


def _message_of(pattern: ErrorPattern, message: str, lines: Sequence[str], at: int) -> str:
    """Return a message with the next line if that belongs to it."""
    following = _next_line(lines, at)
    if pattern.joins:
        joined = _NEXT_LINE_START.sub("", following).strip()
        return _cut(f"{message.rstrip(':')}: {joined}", _LONGEST_MESSAGE)
    message = _whole_message(lines, at, message)
    below = following.strip()
    if below.startswith("what():"):
        return _cut(f"{message}: {below}", _LONGEST_MESSAGE)
    return message


def _whole_message(lines: Sequence[str], at: int, message: str) -> str:
    """Return a message as one line; an exception's text may begin on the next line."""
    if not message:
        return ""
    start = ""
    if lines[at].startswith("E "):
        start = "E "
    parts = [message]
    for line in _text_below(lines, at, start):
        parts.append(line.removeprefix(start))
    return _joined(parts)


def _text_below(lines: Sequence[str], at: int, start: str = "") -> list[str]:
    """Return the lines below an exception that has no text of its own."""
    if not lines[at].rstrip().endswith(":"):
        return []
    near = lines[at + 1 : at + _AFTER]
    return list(takewhile(lambda line: line.strip() and line.startswith(start), near))


def _cmake(lines: Sequence[str], at: int, message: str, place: _Place) -> FirstError:
    """Return CMake's error with the indented paragraph below its first line."""
    following = lines[at + 1 :]
    if place.file:
        below = list(takewhile(_CMAKE_BELOW.match, following))
        quoted = _quoted_error(below)
        if quoted is not None:
            return quoted
    else:  # a text without a place may go on in the first column
        below = list(takewhile(str.strip, following))
    message = message or _joined(_cmake_text(below))
    return FirstError(
        kind=ErrorKind.cmake,
        message=_cut(f"CMake Error: {message}", _LONGEST_MESSAGE),
        file=place.file,
        line=place.line,
        excerpt=_excerpt(_printed([lines[at], *below])[:_MOST_LINES]),
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
    start = _find(texts, _QUOTED.match)
    if start is None:
        return None
    below = takewhile(lambda text: text and not _QUOTE_ENDS.match(text), texts[start + 1 : start + _AFTER])
    return _reported([" ".join([texts[start], *below])])


def _traceback(lines: Sequence[str]) -> FirstError:
    """Return the error of the last traceback, or of its first cause if it is chained; of unittest the first."""
    lines = _first_of_unittest(lines)
    start = _first_cause(lines)
    end = _find(lines, _UNINDENTED.match, start + 1)
    if end is None:
        end = len(lines) - 1
    place = _last_frame(lines[start:end])
    if _GROUP.match(lines[end]):
        end = _find(lines, _MEMBER.match, end + 1) or end
    shown = [*lines[start : end + 1], *_text_below(lines, end)]
    if len(shown) > _MOST_LINES:
        shown = [shown[0], "  …", *shown[2 - _MOST_LINES :]]
    above = _printed(lines[max(0, start - _BEFORE) : start])
    return FirstError(
        kind=ErrorKind.python,
        message=_whole_message(lines, end, lines[end]),
        file=place.file,
        line=place.line,
        excerpt=_excerpt([*above, *shown]),
    )


def _first_of_unittest(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines of the first failed test of unittest, which prints one traceback for each."""
    start = _find(lines, _UNITTEST.match)
    if start is None or _find(lines, _TRACEBACK.match, start) is None:
        return lines
    return [lines[start], *takewhile(lambda line: not _RULE.match(line), lines[start + 1 :])]


def _first_cause(lines: Sequence[str]) -> int:
    """Return where the last traceback starts; of chained ones the first."""
    began = [number for number, line in enumerate(lines) if _TRACEBACK.match(line)]
    start = began.pop()
    while began and _find(lines[:start], _CHAINED.match, began[-1]) is not None:
        start = began.pop()
    return start


def _last_frame(lines: Sequence[str]) -> _Place:
    for line in reversed(lines):
        match = _FRAME.match(line)
        if match is not None:
            return _place_in(match)
    return _Place()


def _find(lines: Sequence[str], fits: Callable[[str], object], begin: int = 0) -> int | None:
    """Return the number of the first line that fits, from ``begin`` on."""
    for number in range(begin, len(lines)):
        if fits(lines[number]):
            return number
    return None


def _printed(lines: Iterable[str]) -> list[str]:
    """Return the lines that are not blank."""
    return [line for line in lines if line.strip()]


def _explaining(lines: Iterable[str]) -> list[str]:
    """Return the lines that may explain a failure."""
    return [line for line in lines if not _ASIDE.search(line)]


def _joined(lines: Iterable[str]) -> str:
    """Return lines as one, without repeated blanks."""
    words = " ".join(lines).split()
    return _cut(" ".join(words), _LONGEST_MESSAGE)


def _excerpt(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(_cut(line) for line in lines)


def _cut(line: str, width: int = _WIDTH) -> str:
    if len(line) <= width:
        return line
    return f"{line[:width]}…"
