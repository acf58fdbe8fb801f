"""The first real error in what scripts have printed: in ninja's block of the step that failed, or wherever it stands.

Read are the words of compilers, linkers, CMake, Python, pytest and shells, line by line and as text that a build could
have written: nothing of it is run or opened here, and what is kept of it has an end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

#: Kinds of errors: who said so.
TOOLS = ("compiler", "linker", "cmake", "python", "shell", "other")
#: Ninja's report of a step that failed: what it would have made, then its command, then what that has printed.
FAILED = re.compile(r"^FAILED: (?:\[code=-?\d+\] )?(?P<outputs>.*\S)\s*$")
_NEXT = re.compile(r"^\[\d+/\d+\b|^ninja: |^FAILED: |^::megabuild:: ")
_NOISE = re.compile(r"^\s*$|^\++ ")
_BEFORE, _AFTER, _WIDTH = 3, 8, 240
#: A traceback's end, and CMake's paragraphs.
_MOST_LINES = 14
_LONGEST_COMMAND = 100_000
_LONGEST_MESSAGE = 300

_WORDS = {
    "PROGRAM": r"(?:\S*/)?(?:[\w.+]+-)*",
    "LINKED": r"undefined (?:reference|symbol)|cannot find|multiple definition|relocation|DSO missing|final link",
    "ERROR": r"(?:fatal |internal compiler )?error",
    "SHELL": r"not found|No such file|denied|unbound variable|syntax error|bad substitution",
}
#: Lines that say what is wrong: of GCC, Clang and assemblers, nvcc and its programs, GNU's, LLVM's and mold's linker,
#: the compilers' drivers, CMake, Python, pytest, shells and scripts. The first pattern that fits a line counts.
_TABLE = r"""
compiler  (?P<file>[^\s:][^:]*):(?P<line>\d+):(?:\d+:)? (?P<message>(?i:<ERROR>): .*)
compiler  (?P<file>[^\s(][^(]*)\((?P<line>\d+)\) ?: (?P<message>(?:catastrophic |internal )?error(?: #[\w-]+)? ?: .*)
linker    (?P<message>nvlink (?:fatal|error) *: .*)
compiler  ptxas (?P<file>\S+), line (?P<line>\d+); (?P<message>(?:fatal|error) *: .*)
compiler  (?P<message>(?:nvcc|ptxas|cicc|cudafe\+\+|fatbinary) (?:fatal|error) *: .*)
linker    (?:<PROGRAM>ld(?:\.\w+)?: )?(?P<file>[^\s:]+):(?:(?P<line>\d+):)?\([^)]*\): (?P<message>.*(?:<LINKED>).*)
linker    <PROGRAM>(?:ld|mold)(?:\.\w+)?: (?!warning)(?:(?P<file>[^\s:]+): )?(?P<message>.*(?:<LINKED>|error: ).*)
linker    (?P<file>\S+): (?P<message>(?:undefined (?:reference|symbol)|multiple definition|relocation).*)
compiler  (?P<message><PROGRAM>(?:[cg]\+\+|gcc|cc|clang(?:\+\+)?|cc1(?:plus)?)(?:-\d+)?: <ERROR>: .*)
cmake     CMake Error at (?P<file>[^:]+):(?P<line>\d+) \([\w:]+\):(?P<message>)
cmake     CMake Error in (?P<file>\S+):(?P<message>)
cmake     CMake Error: (?P<message>.*)
python    (?P<message>)Traceback \(most recent call last\):
python    E +(?P<message>(?:[\w.]*(?:Error|Exception|Interrupt|Failed)\b|assert ).*)
python    (?:FAILED|ERROR) (?P<file>[^\s:]+\.py)(?:::\S+)? - (?P<message>.*)
python    (?P<message>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): .*)
shell     (?P<file>\S+): line (?P<line>\d+): (?P<message>.*(?:<SHELL>).*)
other     (?P<message>(?:error|ERROR|fatal|fatal error): .*)
"""


def _patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    for row in _TABLE.strip().splitlines():
        kind, pattern = row.split(maxsplit=1)
        for name, words in _WORDS.items():
            pattern = pattern.replace(f"<{name}>", words)
        yield kind, re.compile(pattern)


_PATTERNS = tuple(_patterns())
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)')
_CAUSED = re.compile(r"^The above exception was the direct cause of")
_TEST_LINE = re.compile(r"^(?P<file>[^\s:]+\.py):(?P<line>\d+): ")
_LAST_WORD = re.compile(r"^(?P<message>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:: .*)?)$")


@dataclass(frozen=True, kw_only=True)
class FirstError:
    """What a tool said was wrong, and where."""

    kind: str  #: one of `TOOLS`
    message: str  #: in the tool's words, without the place: ``error: 'x' was not declared``
    file: str = ""  #: as the tool named it
    line: int = 0  #: 0 where it named none
    excerpt: tuple[str, ...] = ()  #: the message between a few lines that stood before and after it
    #: of a step of ninja's: its command, which may be long, and what it would have made
    command: str = ""
    outputs: str = ""
    others: int = 0  #: errors that the same step has besides

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}" if self.file and self.line else self.file

    @property
    def headline(self) -> str:
        """``c10/cuda/CUDAFunctions.cpp:2: error: …``."""
        return ": ".join(filter(None, (self.place, self.message)))


@dataclass(frozen=True, kw_only=True)
class _Match:
    at: int  #: its line's number
    kind: str
    file: str
    line: int
    message: str


def telling(line: str) -> bool:
    """Return whether a line begins the report of an error that must not be forgotten, however much comes after it."""
    if len(line) > 10 * _WIDTH or ("rror" not in line and not line.startswith("FAILED: ")):
        return False  # the most frequent answer, at little cost
    match = _match(0, line)
    return FAILED.match(line) is not None or (
        match is not None and match.kind in ("compiler", "cmake", "linker")
    )


def first_error(lines: Sequence[str]) -> FirstError | None:
    """Return the first real error in lines that a script has printed, the last of them when it failed; None for none.

    That of the first step that ninja says to have failed; else what a compiler, a linker or CMake said first, or what
    ended the last Python; else a shell's or a script's own complaint.
    """
    for command, outputs, printed in _failed_steps(lines):
        if found := _best(printed):
            others = sum(match.kind == found.kind for match in _matches(printed)) - 1
            others = others if found.kind in ("compiler", "linker") else 0
            return replace(found, command=command, outputs=outputs, others=others)
        said = next((line for line in printed if not _NOISE.match(line)), "")
        return FirstError(
            kind="other",
            message=_cut(said or f"{outputs.split()[0]} could not be made"),
            excerpt=tuple(_cut(line) for line in printed[-_AFTER:]),
            command=command,
            outputs=outputs,
        )
    return _best([line for line in lines if not _NOISE.match(line)])


def _failed_steps(lines: Sequence[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Give for every step that failed its command, its outputs, and what it has printed."""
    for number, line in enumerate(lines):
        failed = FAILED.match(line)
        if failed is None:
            continue
        rest = lines[number + 1 :]
        command, printed = (rest[0], rest[1:]) if rest and not _NEXT.match(rest[0]) else ("", rest)
        end = next((at for at, one in enumerate(printed) if _NEXT.match(one)), len(printed))
        yield command[:_LONGEST_COMMAND], failed["outputs"], list(printed[:end])


def _best(lines: Sequence[str]) -> FirstError | None:
    found = list(_matches(lines))
    tool = next((match for match in found if match.kind in ("compiler", "linker", "cmake")), None)
    python = [match for match in found if match.kind == "python"]
    chosen = tool or (_uncaught(lines, python) if python else None) or next(iter(found), None)
    return _explained(lines, chosen) if chosen else None


def _matches(lines: Sequence[str]) -> Iterator[_Match]:
    for number, line in enumerate(lines):
        if match := _match(number, line):
            yield match


def _match(number: int, line: str) -> _Match | None:
    line = line[: 10 * _WIDTH]
    for kind, pattern in _PATTERNS:
        if found := pattern.match(line):
            named = found.groupdict()
            return _Match(
                at=number,
                kind=kind,
                file=named.get("file") or "",
                line=int(named.get("line") or 0),
                message=found["message"],
            )
    return None


def _uncaught(lines: Sequence[str], found: Sequence[_Match]) -> _Match:
    """Return the traceback that ended the last Python, or that of its first cause; else the first match."""
    began = [match for match in found if not match.message]
    if not began:
        return found[0]
    last = began[-1]
    for before in reversed(began[:-1]):
        if not any(_CAUSED.match(line) for line in lines[before.at : last.at]):
            break
        last = before
    return last


def _explained(lines: Sequence[str], match: _Match) -> FirstError:
    if match.kind == "python":
        return _python(lines, match)
    if match.kind == "cmake":
        return _cmake(lines, match)
    shown = lines[max(0, match.at - _BEFORE) : match.at + _AFTER + 1]
    return _error(match, shown)


def _error(
    match: _Match, shown: Sequence[str], *, message: str = "", file: str = "", line: int = 0
) -> FirstError:
    return FirstError(
        kind=match.kind,
        message=_cut(" ".join((message or match.message).split()), _LONGEST_MESSAGE),
        file=file or match.file,
        line=line or match.line,
        excerpt=tuple(_cut(one) for one in shown),
    )


def _cmake(lines: Sequence[str], match: _Match) -> FirstError:
    """Add the paragraph that CMake sets in below an error's place."""
    rest = list(lines[match.at + 1 : match.at + 2 * _MOST_LINES])
    end = next((at for at, line in enumerate(rest) if line and not line[0].isspace()), len(rest))
    if rest[end : end + 1] and rest[end].startswith("Call Stack"):
        end = next((at for at in range(end + 1, len(rest)) if not rest[at][:1].isspace()), len(rest))
    paragraph = [line.strip() for line in rest[:end]]
    said = [line for line in paragraph if line]
    sentence = " ".join(said[: next((at for at, line in enumerate(said, 1) if line.endswith((".", ":"))), 3)])
    message = match.message or (f"CMake Error: {sentence}" if sentence else "CMake Error")
    shown = [line for line in (lines[match.at], *rest[:end]) if line.strip()][:_MOST_LINES]
    return _error(match, shown, message=message)


def _python(lines: Sequence[str], match: _Match) -> FirstError:
    """Find what a traceback ends with and the innermost frame, or pytest's line for an error."""
    if match.message:
        place = None if match.file else _place(lines, match.at)
        shown = lines[max(0, match.at - _BEFORE) : match.at + _AFTER + 1]
        if place is None:
            return _error(match, shown)
        return _error(match, shown, file=place["file"], line=int(place["line"]))
    frame, end = None, match.at
    for end in range(match.at + 1, len(lines)):
        frame = _FRAME.match(lines[end]) or frame
        if lines[end].strip() and not lines[end][0].isspace():
            break
    shown = lines[match.at : end + 1]
    if len(shown) > _MOST_LINES:
        shown = [shown[0], "  …", *shown[-_MOST_LINES + 2 :]]
    word = _LAST_WORD.match(lines[end])
    message = word["message"] if word else lines[end].strip()
    if frame is None:
        return _error(match, shown, message=message)
    return _error(match, shown, message=message, file=frame["file"], line=int(frame["line"]))


def _place(lines: Sequence[str], at: int) -> re.Match[str] | None:
    """Return the place of an error that stands alone: pytest's, after it or just before, or a SyntaxError's frame."""
    after = lines[at + 1 :]
    end = next((number for number, line in enumerate(after) if line.startswith(("=", "_"))), len(after))
    before = lines[max(0, at - 2 * _BEFORE) : at]
    patterns = [*((_TEST_LINE, line) for line in after[:end])]
    patterns += [(pattern, line) for line in reversed(before) for pattern in (_FRAME, _TEST_LINE)]
    return next((found for pattern, line in patterns if (found := pattern.match(line))), None)


def _cut(line: str, width: int = _WIDTH) -> str:
    return line if len(line) <= width else f"{line[:width]}…"
