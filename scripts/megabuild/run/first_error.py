"""Find the first real error in the lines that a build script or test has printed.

The lines are untrusted: nothing in them is run or opened here, and everything kept of them is cut.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

#: Ninja's report of a failed step: its outputs, then a line with its command, then its output.
FAILED = re.compile(r"^FAILED: (?:\[code=-?\d+\] )?(?P<outputs>.*\S)\s*$")
_NEXT = re.compile(r"^\[\d+/\d+\b|^ninja: |^FAILED: |^::megabuild:: ")
_BEFORE, _AFTER, _MOST_LINES = 3, 8, 14
_WIDTH, _LONGEST_MESSAGE, _LONGEST_COMMAND = 240, 300, 100_000

_ERROR = r"(?:catastrophic |internal compiler |internal |fatal )?(?i:error)"
_CRASH = (
    r"Segmentation fault|Illegal instruction|Bus error|Floating point exception|Aborted|Trace/breakpoint trap"
)
_LINKED = r"undefined (?:reference|symbol)|multiple definition|relocation"
#: The first of these that fits any line of a failed step decides; without a failed step, of the whole phase.
_PATTERNS = [
    (kind, re.compile(f"^{pattern}"))
    for kind, pattern in (
        ("compiler", rf"(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:\d+:)? (?P<message>{_ERROR}: .*)"),
        ("compiler", rf"(?P<file>[^\s(][^(]*)\((?P<line>\d+)[,\d]*\) ?: (?P<message>{_ERROR}(?: #?[\w-]+)? ?: .*)"),
        ("compiler", r"ptxas (?P<file>\S+), line (?P<line>\d+); (?P<message>(?:fatal|error) *: .*)"),
        ("linker", r"(?P<message>nvlink (?:fatal|error) *: .*)"),
        ("compiler", r"(?P<message>(?:nvcc|ptxas|cicc|cudafe\+\+|fatbinary) (?:fatal|error) *: .*)"),
        ("linker", (rf"(?!.*\bwarning: )(?:\S*ld(?:\.\w+)?: )?(?P<file>[^\s:]+):(?:(?P<line>\d+):)?(?:.*: )?[^:]*?"
                   rf"(?P<message>(?:{_LINKED}).*)")),
        ("linker", (r"\S*\b(?:ld(?:\.\w+)?|mold): (?!.*\bwarning: |.*: in function |skipping incompatible )"
                   r"(?:(?P<file>[^\s:]+): )?(?P<message>.*)")),
        ("compiler", rf"(?P<message>(?:\S*[-/])?(?:[cg]\+\+|g?cc|clang(?:\+\+)?|cc1\w*|rustc)(?:-\d+)?: {_ERROR}: .*)"),
        ("compiler", r"(?P<message>error\[\w+\]: .*)"),
        ("cmake", r"CMake Error(?: (?:at|in) (?P<file>[^:]+?)(?::(?P<line>\d+) \([\w:]+\))?)?:(?P<message>.*)"),
        ("other", r"(?P<message>ninja: (?:error|fatal): .*)"),
        ("other", (rf"(?P<message>Fatal Python error: .*|terminate called .*|.*: Assertion [`'].*' failed\.?"
                  rf"|(?:{_CRASH})(?: \(core dumped\))?\s*$)")),
        ("shell", rf"(?P<file>\S+): line (?P<line>\d+): +\d+ (?P<message>(?:{_CRASH}).*)"),
        ("python", r"(?P<message>)Traceback \(most recent call last\):"),
        ("python", r"E +(?P<message>(?:[\w.]*(?:Error|Exception|Interrupt|Failed)\b|assert ).*)"),
        ("python", r"(?:FAILED|ERROR) (?P<file>[^\s:]+\.py)(?:::\S+)? - (?P<message>.*)"),
        ("python", r"(?P<message>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): .*)"),
        ("shell", (r"(?P<file>\S+): line (?P<line>\d+): (?P<message>.*(?:not found|No such file|denied|unbound variable"
                  r"|syntax error|bad substitution|Exec format).*)")),
        ("other", r"make(?:\[\d+\])?: \*\*\* (?P<message>(?!\[).*)"),
        ("other", r"(?P<message>Hunk #\d+ FAILED at \d+\..*)"),
        ("compiler", (r"(?P<file>[^\s:]+\.\w+):(?P<line>\d+):\d+: (?!(?i:warn|note|remark|anmerk|avert|remarque))"
                     r"(?P<message>\S.*)")),
        ("other", r"(?P<message>(?:[\w./+-]+: )?(?:[Ee]rror|ERROR|[Ff]atal|FATAL|fatal error): .*)"),
    )
]  # fmt: skip
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)')
_TEST_LINE = re.compile(r"^(?P<file>[^\s:]+\.py):(?P<line>\d+): ")
_SHELL_LINE = re.compile(r"^(?P<file>\S+): line (?P<line>\d+): ")
_RUST_LINE = re.compile(r"^\s*--> (?P<file>[^:]+):(?P<line>\d+)")
_PATCHED = re.compile(r"^patching file (?P<file>\S+)(?P<line>)")
_CAUSED = "The above exception was the direct cause of"
#: A line before a traceback that does not end the program.
_HARMLESS = re.compile(r"^Exception (?:ignored|in thread)|^--- Logging error|^Error in ")
#: Lines that explain no failure.
_ASIDE = re.compile(
    r"^\s*$|(?i:\bwarning\b)|\bnote: |^\s*(?:\d* *\||\^|~)|^In file included|^compilation terminated|^collect2: error: "
    r"|^make(?:\[\d+\])?: |^ninja: build stopped|use the --help option|: in function |^\++ "
)


@dataclass(frozen=True, kw_only=True)
class FirstError:
    """An error as a tool reported it."""

    kind: str  #: who reports it: ``compiler``, ``linker``, ``cmake``, ``python``, ``shell`` or ``other``
    message: str  #: in the tool's words, without the place: ``error: 'x' was not declared``
    file: str = ""  #: as the tool named it
    line: int = 0  #: 0 where it named none
    excerpt: tuple[str, ...] = ()  #: the message and a few lines around it
    command: str = ""  #: of ninja's failed step, may be long
    outputs: str = ""  #: of ninja's failed step

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}" if self.file and self.line else self.file

    @property
    def headline(self) -> str:
        """``c10/cuda/CUDAFunctions.cpp:2: error: …``."""
        return ": ".join(filter(None, (self.place, self.message)))


def is_error_line(line: str) -> bool:
    """Return whether a line begins the report of an error that must be kept however much is printed after it."""
    if "rror" not in line and not line.startswith("FAILED: "):
        return False  # the most frequent answer, at little cost
    tools = (pattern for kind, pattern in _PATTERNS if kind in ("compiler", "linker", "cmake"))
    short = line[: 10 * _WIDTH]
    return bool(FAILED.match(short)) or any(pattern.match(short) for pattern in tools)


def first_error(lines: Sequence[str]) -> FirstError | None:
    """Return the error of the first step that ninja reports as failed, else the first error of any tool, else None."""
    step = next((number for number, line in enumerate(lines) if FAILED.match(line)), None)
    if step is None:
        return _error_in(lines)
    failed = FAILED.match(lines[step])
    outputs = failed["outputs"] if failed else ""
    printed = list(lines[step + 1 :])
    command = printed.pop(0)[:_LONGEST_COMMAND] if printed and not _NEXT.match(printed[0]) else ""
    end = next((number for number, line in enumerate(printed) if _NEXT.match(line)), len(printed))
    printed = printed[:end]
    error = _error_in(printed)
    if error is None:
        last = [line for line in printed if not _ASIDE.search(line)] or printed
        message = last[-1] if last else f"{outputs.split()[0]} could not be made"
        error = FirstError(kind="other", message=_cut(message), excerpt=tuple(map(_cut, printed[-_AFTER:])))
    return replace(error, command=command, outputs=outputs)


def _error_in(lines: Sequence[str]) -> FirstError | None:
    """Return the first error; of tracebacks that did not end a program only where there is nothing else."""
    short = [line[: 10 * _WIDTH] for line in lines]
    ending, harmless = [], False
    for line in short:
        if _HARMLESS.match(line):
            harmless = True
        elif not harmless:
            ending.append(line)
        elif not line.startswith((" ", "Traceback")):
            harmless = False  # its last line
    return _reported(ending) or _reported(short)


def _reported(lines: Sequence[str]) -> FirstError | None:
    for kind, pattern in _PATTERNS:
        for at, line in enumerate(lines):
            match = pattern.match(line)
            if match is None:
                continue
            if kind == "python" and not match["message"]:
                return _traceback(lines)
            named = match.groupdict()
            error = FirstError(
                kind=kind,
                message=_cut(" ".join(match["message"].split()), _LONGEST_MESSAGE),
                file=named.get("file") or "",
                line=int(named.get("line") or 0),
                excerpt=tuple(map(_cut, lines[max(0, at - _BEFORE) : at + _AFTER + 1])),
            )
            return _cmake(lines, at, error) if kind == "cmake" else _placed(lines, at, error)
    return None


def _placed(lines: Sequence[str], at: int, error: FirstError) -> FirstError:
    """Add the place of an error whose own line has none."""
    before, after = list(reversed(lines[max(0, at - _MOST_LINES) : at])), lines[at + 1 : at + 40]
    if error.file:
        return error
    if error.message.startswith("terminate called") and after and after[0].lstrip().startswith("what():"):
        error = replace(error, message=_cut(f"{error.message}: {after[0].strip()}", _LONGEST_MESSAGE))
    match error.kind, error.message[:4]:
        case "python", _:
            same = takewhile(lambda line: not line.startswith(("=", "_")), after)
            places = [_TEST_LINE.match(line) for line in same]
            places += [pattern.match(line) for line in before for pattern in (_FRAME, _TEST_LINE)]
        case "compiler" | "other", "erro":
            places = [_RUST_LINE.match(line) for line in after[:_BEFORE]]
        case "other", "Hunk":
            places = [_PATCHED.match(line) for line in before]
        case "other", "Fata" | "term":  # a crash: frames of the user's own come before those of libraries
            frames = (line for line in after if "/lib/python" not in line)
            places = [*map(_FRAME.match, frames), *map(_SHELL_LINE.match, after)]
        case _:
            places = []
    place = next(filter(None, places), None)
    return replace(error, file=place["file"], line=int(place["line"] or 0)) if place else error


def _cmake(lines: Sequence[str], at: int, error: FirstError) -> FirstError:
    """Add the indented paragraph that CMake prints below an error's place: its first sentence is the message."""
    end = at + 1
    while end < len(lines) and re.match(r"\s|$|Call Stack", lines[end]):
        end += 1
    block = [line for line in lines[at:end] if line.strip()][:_MOST_LINES]
    text = " ".join(" ".join(line.split()) for line in block[1:])
    sentence = re.match(r".*?[.:](?=\s|$)", text)
    message = error.message or _cut(sentence[0] if sentence else text, _LONGEST_MESSAGE)
    return replace(error, message=f"CMake Error: {message}".rstrip(": "), excerpt=tuple(map(_cut, block)))


def _traceback(lines: Sequence[str]) -> FirstError:
    """Return the error of the traceback that ended the last Python, or of its first cause."""
    began = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent")]
    start = began.pop()
    while began and any(line.startswith(_CAUSED) for line in lines[began[-1] : start]):
        start = began.pop()
    inside = (number for number in range(start + 1, len(lines)) if lines[number].strip())
    end = next((number for number in inside if not lines[number][0].isspace()), len(lines) - 1)
    shown = lines[start : end + 1]
    shown = [shown[0], "  …", *shown[2 - _MOST_LINES :]] if len(shown) > _MOST_LINES else shown
    frame = next(filter(None, map(_FRAME.match, reversed(lines[start:end]))), None)
    return FirstError(
        kind="python",
        message=_cut(" ".join(lines[end].split()), _LONGEST_MESSAGE),
        file=frame["file"] if frame else "",
        line=int(frame["line"]) if frame else 0,
        excerpt=tuple(map(_cut, shown)),
    )


def _cut(line: str, width: int = _WIDTH) -> str:
    return line if len(line) <= width else f"{line[:width]}…"
