"""Finds the first real error in the lines that a build script or test printed.

The lines are untrusted: no command in them is run, no file opened, and every kept text is truncated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

#: Ninja's report of a failed step: its outputs, then a line with its command, then its output.
FAILED = re.compile(r"^FAILED: (?:\[code=-?\d+\] )?(?P<outputs>.*\S)\s*$")
_NEXT = re.compile(r"^\[\d+/\d+\b|^ninja: |^FAILED: |^::megabuild:: ")
#: pip's line above the output of a build, at the output's indentation, or left of it in a box.
_PIP = re.compile(r"^(?P<blanks> *)(?:Running command |(?P<bar>╰─> )\[\d+ lines of output\])")
_BEFORE, _AFTER, _MOST_LINES = 3, 8, 14
_WIDTH, _LONGEST_MESSAGE, _LONGEST_COMMAND = 240, 300, 100_000

_ERROR = r"(?:catastrophic |internal compiler |internal |fatal )?(?i:error)"
_CRASH = (
    r"Segmentation fault|Illegal instruction|Bus error|Floating point exception|Aborted|Trace/breakpoint trap"
)
_COMPILERS = r"(?:\S*[-/])?(?:[cg]\+\+|g?cc|clang(?:\+\+)?|cc1\w*|lto1|rustc)(?:-\d+)?"
_FILE, _LINE = r"(?P<file>[^\s:]+)", r"(?P<line>\d+)"
#: In order of priority: the first pattern that matches any line of the failed step, else of the whole phase, decides.
_PATTERNS = [
    (kind, re.compile(f"^{pattern}"))
    for kind, pattern in (
        ("compiler", rf"(?P<file>[^\s:][^:]*):{_LINE}:(?:\d+:)? (?P<message>{_ERROR}: .*)"),
        ("compiler", rf"(?P<file>[^\s(][^(]*)\({_LINE}[,\d]*\) ?: (?P<message>{_ERROR}(?: #?[\w-]+)? ?: .*)"),
        ("compiler", rf"ptxas (?P<file>\S+), line {_LINE}; (?P<message>(?:fatal|error) *: .*)"),
        ("linker", r"(?P<message>nvlink (?:fatal|error) *: .*)"),
        ("compiler", (r"(?P<message>(?:nvcc|ptxas|cicc|cudafe\+\+|fatbinary) (?:fatal|error) *: "
                      r"(?!Failed to preprocess host compiler properties).*)")),
        ("linker", (rf"(?!.*\bwarning: )(?:\S*ld(?:\.\w+)?: )?{_FILE}:(?:{_LINE}:)?(?:.*: )?[^:]*?"
                    r"(?P<message>(?:undefined (?:reference|symbol)|multiple definition|relocation).*)")),
        ("linker", rf"{_FILE}: (?P<message>file not recognized: .*)"),
        ("linker", (r"\S*\b(?:ld(?:\.\w+)?|mold): (?!.*\bwarning: |.*: in function |skipping incompatible "
                    r"|.*\blto-wrapper )"
                    rf"(?:{_FILE}: )?(?P<message>.*)")),
        ("compiler", rf"(?P<message>{_COMPILERS}: {_ERROR}: .*|error\[\w+\]: .*)"),
        ("cmake", rf"CMake Error(?: (?:at|in) (?P<file>[^:]+?)(?::{_LINE} \([\w:]+\))?)?:(?P<message>.*)"),
        ("other", (r"(?P<message>ninja: (?:error|fatal): .*|Fatal Python error: .*|terminate called .*"
                   rf"|.*: Assertion [`'].*' failed\.?|(?:{_CRASH})(?: \(core dumped\))?\s*$)")),
        ("shell", rf"(?P<file>\S+): line {_LINE}: +\d+ (?P<message>(?:{_CRASH}).*)"),
        ("python", r"(?P<message>)Traceback \(most recent call last\):"),
        ("python", r"E +(?P<message>(?:[\w.]*(?:Error|Exception|Interrupt|Failed)\b|assert ).*)"),
        ("python", r"(?:FAILED|ERROR) (?P<file>[^\s:]+\.py)(?:::\S+)? - (?P<message>.*)"),
        ("python", r"(?P<message>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): .*)"),
        ("shell", (rf"(?P<file>\S+): line {_LINE}: (?P<message>.*(?:not found|No such file|denied|unbound variable"
                   r"|syntax error|bad substitution|Exec format).*)")),
        ("other", r"make(?:\[\d+\])?: \*\*\* (?P<message>(?!\[).*)"),
        ("other", r"(?P<message>Hunk #\d+ FAILED at \d+\..*)"),
        ("compiler", rf"(?P<file>[^\s:]+\.\w+):{_LINE}:\d+: (?!(?i:warn|note|remark|anmerk|avert))(?P<message>\S.*)"),
        ("other", r"(?P<message>(?!collect2: )(?:[\w./+-]+: )?(?:[Ee]rror|ERROR|[Ff]atal|FATAL|fatal error): .*)"),
    )
]  # fmt: skip
#: Lines near an error that name its file: of Python, pytest, a shell, Rust, patch.
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)')
_PLACES = [_FRAME] + [
    re.compile(pattern)
    for pattern in (
        rf"^(?P<file>[^\s:]+\.py):{_LINE}: ",
        rf"^(?P<file>\S+): line {_LINE}: ",
        rf"^\s*--> (?P<file>[^:]+):{_LINE}",
        r"^patching file (?P<file>\S+)(?P<line>)",
    )
]
#: The start of a compiler's error that CMake quotes, and lines below that end its text.
_QUOTED = re.compile(rf"[^\s:]+:\d+:(?:\d+:)? {_ERROR}:")
_QUOTE_ENDS = re.compile(r"\d* *\||[^\s:]+:\d+:")
#: A traceback that does not end the program.
_HARMLESS = re.compile(
    r"^(?:(?:Exception (?:ignored|in thread)|--- Logging error|Error in ).*\n)+(?:(?: |Traceback).*\n)*.*\n",
    re.MULTILINE,
)
#: Lines that explain no failure.
_ASIDE = re.compile(
    r"^\s*$|(?i:\bwarning\b)|\bnote: |^\s*(?:\d* *\||\^|~)|^In file included|^compilation terminated|^collect2: error: "
    r"|^make(?:\[\d+\])?: |^ninja: build stopped|use the --help option|: in function |^\++ "
)


@dataclass(frozen=True, kw_only=True)
class FirstError:
    """An error as a tool reported it."""

    kind: str  #: reporting tool: ``compiler``, ``linker``, ``cmake``, ``python``, ``shell`` or ``other``
    message: str  #: the tool's text without file and line: ``error: 'x' was not declared``
    file: str = ""  #: as the tool printed it
    line: int = 0  #: 0 if unknown
    excerpt: tuple[str, ...] = ()  #: the message and a few lines around it
    command: str = ""  #: of ninja's failed step; may be long
    outputs: str = ""  #: of ninja's failed step

    @property
    def headline(self) -> str:
        """``c10/cuda/CUDAFunctions.cpp:2: error: …``."""
        place = f"{self.file}:{self.line}" if self.file and self.line else self.file
        return ": ".join(filter(None, (place, self.message)))


def first_error(lines: Sequence[str]) -> FirstError | None:
    """Return the error of the first step that ninja reports as failed, else the first error of any tool, else None."""
    lines = _without_indent_of_pip(lines)
    step, failed = next(
        ((n, match) for n, line in enumerate(lines) if (match := FAILED.match(line))), (0, None)
    )
    if failed is None:
        return _error_in(lines)
    outputs = failed["outputs"]
    printed = list(takewhile(lambda line: not _NEXT.match(line), lines[step + 1 :]))
    command = printed.pop(0)[:_LONGEST_COMMAND] if printed else ""
    # a step of ninja's console pool prints while it runs, so before the report that it failed
    console = list(takewhile(lambda line: not _NEXT.match(line), reversed(lines[:step])))[::-1]
    error = _error_in(printed) or (_error_in(console) if not printed else None)
    if error is None:
        relevant = [line for line in printed if not _ASIDE.search(line)] or printed
        message = relevant[-1] if relevant else f"{outputs.split()[0]}: failed without output"
        error = FirstError(kind="other", message=_cut(message), excerpt=tuple(map(_cut, printed[-_AFTER:])))
    return replace(error, command=command, outputs=outputs)


def _without_indent_of_pip(lines: Sequence[str]) -> list[str]:
    """Remove the blanks that pip puts before all that a build prints; pips may call each other."""
    shifted, indent = [], 0
    for line in lines:
        if line.strip() and not line.startswith(" " * indent):
            indent = 0
        shifted.append(line[indent:])
        if match := _PIP.match(shifted[-1]):
            indent += len(match["blanks"]) + len(match["bar"] or "")
    return shifted


def _error_in(lines: Sequence[str]) -> FirstError | None:
    """Return the first error; a traceback that did not end its program counts only if there is no other error."""
    text = "".join(f"{line[: 10 * _WIDTH]}\n" for line in lines)
    return _reported(_HARMLESS.sub("", text).split("\n")[:-1]) or _reported(text.split("\n")[:-1])


def _reported(lines: Sequence[str]) -> FirstError | None:
    for kind, pattern in _PATTERNS:
        for at, line in enumerate(lines):
            if match := pattern.match(line):
                if kind == "python" and not match["message"]:
                    return _traceback(lines)
                named = match.groupdict()
                message, file = _whole_message(lines, at, match["message"]), named.get("file") or ""
                number = int(named.get("line") or 0)
                if kind == "cmake":
                    return _cmake(lines, at, message, file, number)
                if not file and kind != "linker" and not message.startswith("ninja: "):
                    below = lines[at + 1].strip() if at + 1 < len(lines) else ""
                    if below.startswith("what():"):
                        message = _cut(f"{message}: {below}", _LONGEST_MESSAGE)
                    file, number = _nearest_place(lines, at)
                excerpt = tuple(map(_cut, lines[max(0, at - _BEFORE) : at + _AFTER + 1]))
                return FirstError(kind=kind, message=message, file=file, line=number, excerpt=excerpt)
    return None


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
    message = message or " ".join(" ".join(takewhile(str.strip, lines[at + 1 : end])).split())
    message = _cut(f"CMake Error: {message}", _LONGEST_MESSAGE)
    return FirstError(kind="cmake", message=message, file=file, line=line, excerpt=tuple(map(_cut, block)))


def _quoted_error(lines: Sequence[str]) -> FirstError | None:
    """Return the compiler's error that CMake quotes, wrapped, where its test of a compiler failed."""
    texts = [line.strip() for line in lines]
    start = next((n for n, text in enumerate(texts) if _QUOTED.match(text)), None)
    if start is None:
        return None
    below = takewhile(lambda text: text and not _QUOTE_ENDS.match(text), texts[start + 1 : start + _AFTER])
    return _reported([" ".join([texts[start], *below])])


def _traceback(lines: Sequence[str]) -> FirstError:
    """Return the error of the last traceback, or of its first cause if it is chained."""
    began = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent")]
    start = began.pop()
    while began and any(
        line.startswith("The above exception was the direct") for line in lines[began[-1] : start]
    ):
        start = began.pop()
    inside = (n for n in range(start + 1, len(lines)) if lines[n].strip() and not lines[n][0].isspace())
    end = next(inside, len(lines) - 1)
    shown = [*lines[start : end + 1], *_text_below(lines, end)]
    shown = [shown[0], "  …", *shown[2 - _MOST_LINES :]] if len(shown) > _MOST_LINES else shown
    frame = next(filter(None, map(_FRAME.match, reversed(lines[start:end]))), None)
    return FirstError(
        kind="python",
        message=_whole_message(lines, end, lines[end]),
        file=frame["file"] if frame else "",
        line=int(frame["line"]) if frame else 0,
        excerpt=tuple(map(_cut, shown)),
    )


def _cut(line: str, width: int = _WIDTH) -> str:
    return line if len(line) <= width else f"{line[:width]}…"
