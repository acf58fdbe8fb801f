"""Finds the first real error in the lines that a build script or test printed.

The lines are untrusted: no command in them is run, no file opened, and every kept text is truncated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from groundwork.error_patterns import CERTAIN, SUMMARIES, WEAK, ErrorPattern, Strength
from groundwork.failed_step import FailedStep, find_failed_step

_BEFORE, _AFTER, _MOST_LINES = 3, 8, 14
_WIDTH, _LONGEST_MESSAGE = 240, 300
#: Lines above a message in which its file may be named.
_ABOVE = 6

#: Lines near an error that name its file: of Python, pytest, a shell, Rust, patch.
_FRAME = re.compile(r'^\s*File "(?P<file>(?!<frozen )[^"]+)", line (?P<line>\d+)')
_PLACES = [_FRAME] + [
    re.compile(pattern)
    for pattern in (
        r"^(?P<file>[^\s:]+\.py):(?P<line>\d+)(?:: |$)",
        r"^(?P<file>\S+): line (?P<line>\d+): ",
        r"^\s*--> (?P<file>[^:]+):(?P<line>\d+)",
        r"^patching file (?P<file>\S+)(?P<line>)",
    )
]
#: The start of a compiler's error that CMake quotes, and lines below that end its text.
_QUOTED = re.compile(
    r"[^\s:]+:\d+:(?:\d+:)? (?:fatal |internal )?error:|\S*(?:cc|\+\+|clang)\S*: (?:fatal )?error: "
)
_QUOTE_ENDS = re.compile(r"\d* *\||[^\s:]+:\d+:|gmake|make|ninja: ")
#: Lines below CMake's message that are not of it.
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
#: unittest's title above each failed test's traceback, between two rules.
_UNITTEST, _RULE = re.compile(r"^(?:ERROR|FAIL): \w+ \("), re.compile(r"^={70}$")
#: An exception in a group, whose own line only counts the others.
_GROUP, _EXCEPTION = re.compile(r"^\s*(?:Base)?ExceptionGroup: "), re.compile(r"^(?:\w+\.)*[A-Z]\w*(?:: |$)")


@dataclass(frozen=True, kw_only=True)
class FirstError:
    """An error as a tool reported it."""

    kind: str  #: reporting tool: ``compiler``, ``linker``, ``cmake``, ``python``, ``shell`` or ``other``
    message: str  #: the tool's text without file and line: ``error: 'x' was not declared``
    file: str = ""  #: as the tool printed it
    line: int = 0  #: 0 if unknown
    excerpt: tuple[str, ...] = ()  #: the message and a few lines around it
    command: str = ""  #: of the failed step; may be long
    outputs: str = ""  #: of ninja's failed step

    @property
    def headline(self) -> str:
        """``c10/cuda/CUDAFunctions.cpp:2: error: …``."""
        place = f"{self.file}:{self.line}" if self.file and self.line else self.file
        return ": ".join(filter(None, (place, self.message)))


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
    relevant = [line for line in step.lines if not _ASIDE.search(line)] or step.lines
    if not relevant:
        name = step.outputs.partition(" ")[0] or step.command
        message = f"{name}: failed without output"
        return FirstError(kind="other", message=_cut(message), excerpt=(_cut(step.command),))
    return FirstError(
        kind="other", message=_cut(relevant[-1]), excerpt=tuple(map(_cut, step.lines[-_AFTER:]))
    )


def _of_traced_command(step: FailedStep) -> FirstError:
    """Return the error of a traced command that reports none; if it is silent, a certain one of an earlier command."""
    command, shown = f"+ {step.command}", [line for line in step.lines if line.strip()]
    if not any(not _ASIDE.search(line) for line in step.lines):
        if (earlier := _certain_error(step.earlier)) is not None:
            return earlier
        excerpt = [*step.earlier[1 - _MOST_LINES :], command]
    else:
        excerpt = [command, *shown[-_AFTER:]]
    message = _cut(f"failed: {step.command}", _LONGEST_MESSAGE)
    return FirstError(kind="shell", message=message, excerpt=tuple(map(_cut, excerpt)), command=step.command)


def _error_in(lines: Sequence[str]) -> FirstError | None:
    """Return the error; a traceback that did not end its program counts only if there is no other error."""
    text = "".join(f"{line[: 10 * _WIDTH]}\n" for line in lines)
    harmful = _HARMLESS.sub("", text)
    error = _reported(harmful.split("\n")[:-1])
    return error if error is not None or harmful == text else _reported(text.split("\n")[:-1])


def _reported(lines: Sequence[str]) -> FirstError | None:
    return _certain_error(lines) or _last_of(WEAK, lines) or _last_of(SUMMARIES, lines)


def _certain_error(lines: Sequence[str]) -> FirstError | None:
    for pattern in CERTAIN:
        for at in range(len(lines)):
            if match := _match(pattern, lines, at):
                return _error_of(pattern, match, lines, at)
    return None


def _last_of(patterns: Sequence[ErrorPattern], lines: Sequence[str]) -> FirstError | None:
    """Return the last match; a message that ends with a colon is continued by the next line."""
    for at in range(len(lines) - 1, -1, -1):
        for pattern in patterns:
            if not _match(pattern, lines, at):
                continue
            first = at
            while first and lines[first - 1].rstrip().endswith(":") and _match(pattern, lines, first - 1):
                first -= 1
            match = _match(pattern, lines, first)
            return _error_of(pattern, match, lines, first) if match else None
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
    return next((line for line in lines[at + 1 :] if line.strip()), "")


def _place_above(pattern: ErrorPattern, lines: Sequence[str], at: int) -> re.Match[str] | None:
    near = reversed(lines[max(0, at - _ABOVE) : at])
    return next(filter(None, (re.match(pattern.above, line) for line in near)), None)


def _error_of(pattern: ErrorPattern, match: re.Match[str], lines: Sequence[str], at: int) -> FirstError:
    if pattern.kind == "python" and not match["message"]:
        return _traceback(lines)
    named = match.groupdict()
    if pattern.above and (place := _place_above(pattern, lines, at)) is not None:
        named |= place.groupdict()
    file, number = named.get("file") or "", int(named.get("line") or 0)
    if pattern.kind == "cmake":
        return _cmake(lines, at, _whole_message(lines, at, match["message"]), file, number)
    if not file and _has_place_nearby(pattern, match["message"]):
        file, number = _nearest_place(lines, at)
    excerpt = tuple(map(_cut, lines[max(0, at - _BEFORE) : at + _AFTER + 1]))
    message = _message_of(pattern, match["message"], lines, at)
    return FirstError(kind=pattern.kind, message=message, file=file, line=number, excerpt=excerpt)


def _has_place_nearby(pattern: ErrorPattern, message: str) -> bool:
    """Return whether another line may name the place of an error that names none."""
    alone = pattern.kind == "linker" or pattern.joins or message.startswith("ninja: ")
    return pattern.strength is Strength.certain and not alone


def _message_of(pattern: ErrorPattern, message: str, lines: Sequence[str], at: int) -> str:
    """Return a message with the next line if that belongs to it."""
    if pattern.joins:
        joined = _NEXT_LINE_START.sub("", _next_line(lines, at)).strip()
        return _cut(f"{message.rstrip(':')}: {joined}", _LONGEST_MESSAGE)
    message = _whole_message(lines, at, message)
    below = lines[at + 1].strip() if at + 1 < len(lines) else ""
    return _cut(f"{message}: {below}", _LONGEST_MESSAGE) if below.startswith("what():") else message


def _whole_message(lines: Sequence[str], at: int, message: str) -> str:
    """Return a message as one line; an exception's text may begin on the next line."""
    start = "E " if lines[at].startswith("E ") else ""
    below = (line.removeprefix(start) for line in _text_below(lines, at, start) if message)
    return _cut(" ".join(" ".join([message, *below]).split()), _LONGEST_MESSAGE)


def _text_below(lines: Sequence[str], at: int, start: str = "") -> list[str]:
    """Return the lines below an exception that has no text of its own."""
    if not lines[at].rstrip().endswith(":"):
        return []
    return list(takewhile(lambda line: line.strip() and line.startswith(start), lines[at + 1 : at + _AFTER]))


def _nearest_place(lines: Sequence[str], at: int) -> tuple[str, int]:
    """Return the nearest file and line, but no library's, of an error that names none."""
    near = [*lines[at + 1 : at + 40], *reversed(lines[max(0, at - _MOST_LINES) : at])]
    matches = (pattern.match(line) for line in near if "/lib/python" not in line for pattern in _PLACES)
    place = next(filter(None, matches), None)
    return (place["file"], int(place["line"] or 0)) if place else ("", 0)


def _cmake(lines: Sequence[str], at: int, message: str, file: str, line: int) -> FirstError:
    """Return CMake's error with the indented paragraph below its first line."""
    end = at + 1
    while end < len(lines) and re.match(r"\s|$|Call Stack", lines[end]):
        end += 1
    if not file:  # a text without a place may go on in the first column
        end = next((n for n in range(at + 1, len(lines)) if not lines[n].strip()), len(lines))
    elif (quoted := _quoted_error(lines[at + 1 : end])) is not None:
        return quoted
    block = [line for line in lines[at:end] if line.strip()][:_MOST_LINES]
    message = message or " ".join(" ".join(_cmake_text(lines[at + 1 : end])).split())
    message = _cut(f"CMake Error: {message}", _LONGEST_MESSAGE)
    return FirstError(kind="cmake", message=message, file=file, line=line, excerpt=tuple(map(_cut, block)))


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
    start = next((n for n, text in enumerate(texts) if _QUOTED.match(text)), None)
    if start is None:
        return None
    below = takewhile(lambda text: text and not _QUOTE_ENDS.match(text), texts[start + 1 : start + _AFTER])
    return _reported([" ".join([texts[start], *below])])


def _traceback(lines: Sequence[str]) -> FirstError:
    """Return the error of the last traceback, or of its first cause if it is chained; of unittest the first."""
    lines = _first_of_unittest(lines)
    began = [number for number, line in enumerate(lines) if _TRACEBACK.match(line)]
    start = began.pop()
    while began and any(
        line.startswith("The above exception was the direct") for line in lines[began[-1] : start]
    ):
        start = began.pop()
    inside = (n for n in range(start + 1, len(lines)) if lines[n].strip() and not lines[n][0].isspace())
    end = next(inside, len(lines) - 1)
    text = _whole_message(lines, end, lines[end])
    frame = next(filter(None, map(_FRAME.match, reversed(lines[start:end]))), None)
    if _GROUP.match(lines[end]):
        members = range(end + 1, len(lines))
        end = next((n for n in members if _EXCEPTION.match(lines[n]) and not _GROUP.match(lines[n])), end)
        text = _whole_message(lines, end, lines[end])
    shown = [*lines[start : end + 1], *_text_below(lines, end)]
    above = [line for line in lines[max(0, start - _BEFORE) : start] if line.strip()]
    shown = (
        [*above, shown[0], "  …", *shown[2 - _MOST_LINES :]] if len(shown) > _MOST_LINES else [*above, *shown]
    )
    return FirstError(
        kind="python",
        message=text,
        file=frame["file"] if frame else "",
        line=int(frame["line"]) if frame else 0,
        excerpt=tuple(map(_cut, shown)),
    )


def _first_of_unittest(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines of the first failed test of unittest, which prints one traceback for each."""
    start = next((n for n, line in enumerate(lines) if _UNITTEST.match(line)), None)
    if start is None or not any(_TRACEBACK.match(line) for line in lines[start:]):
        return lines
    return [lines[start], *takewhile(lambda line: not _RULE.match(line), lines[start + 1 :])]


def _cut(line: str, width: int = _WIDTH) -> str:
    return line if len(line) <= width else f"{line[:width]}…"
