"""Finds the step that failed in a build's output, and that step's own lines.

The lines are untrusted: no command in them is run and no file opened.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import dropwhile, takewhile
from typing import Any

_LONGEST_COMMAND = 100_000
#: Lines at the end in which shells and wrappers report how a program ended.
_LAST_LINES = 6
#: Ninja's report of a failed step: its outputs, then a line with its command, then its output.
_FAILED = re.compile(r"^FAILED: (?:\[code=(?P<code>-?\d+)\] )?(?P<outputs>.*\S)\s*$")
#: The same of samurai, which other programs call ninja, too.
_SAMURAI = re.compile(r"^ninja: job failed with status (?P<code>\d+): (?P<command>.*)$")
_ENDED = re.compile(r"^ninja: build stopped")
_WARNING = re.compile(r"^ninja: warning: ")
_NEXT = re.compile(r"^\[\d+/\d+\b|^ninja: |^FAILED: |^::megabuild:: ")
#: The report of make that a recipe failed, below the recipe's output.
_MAKE = re.compile(r"^\w*make(?:\[\d+\])?: \*\*\* \[.*\] (?:Error (?P<code>\d+)|\w.*)")
#: A command that a shell traces (``set -x``).
_TRACE = re.compile(r"^\++ (?P<command>(?!.* \++$)\S.*)")
#: Lines of a text's comparison, as unittest and diff print it: near these, a plus begins no command.
_DIFF = re.compile(r"^(?:- |\? |@@ |--- )")
_NEAR = 3
#: Commands that do not fail, or not without a message: those of a script's end, such as a trap's.
_SAYS_WHY = re.compile(
    r"^(?:exit|return|set|trap|:|true|echo|printf|export|local|unset|rm|cd|pushd|popd|kill|wait)(?: |$)"
    r"|^\w+=|^\[\[? \d+ -\w+ \d+ \]"
)
#: Lines after which a wrapper indents another program's output: pip, uv, cargo; blanks, then a box's corner.
_INDENTING = re.compile(
    r"^(?P<blanks> *)(?:Running command |(?P<corner>╰─> )\[\d+ lines of output\]"
    r"|\[std(?:out|err)\]$|--- std(?:out|err)$)"
)
#: rustc's report of a linker, whose output follows, indented.
_RUSTC_LINKS = re.compile(r"^error: linking with ")
_RUSTC_NOTE = re.compile(r"^\s+(?:= note: )?")
#: A group of exceptions, with lines at the left of its tracebacks.
_GROUP = re.compile(r"^\s*\+ Exception Group Traceback \(most recent call last\):")
_GROUP_BAR = re.compile(r"^\s*(?:\+(?:-\+)?-* ?|\| ?)")
#: ``ctest -V`` puts a test's number before each of its lines.
_CTEST = re.compile(r"^(?P<prefix>\d+: )Test command: ")
#: GCC's diagnostics in JSON or SARIF take one line.
_JSON = re.compile(r'^(?:\[\{"|\{"(?:\$schema|version|runs)")')


@dataclass(frozen=True, kw_only=True)
class FailedStep:
    """The command that failed, as far as its output tells."""

    lines: Sequence[str]  #: the command's own output; all lines if no tool tells commands apart
    earlier: Sequence[str] = ()  #: lines above a traced command
    reports: Sequence[str] = ()  #: lines of the tool that ran the command, about its end
    command: str = ""  #: may be long
    outputs: str = ""  #: of a step of ninja
    known: bool = False  #: ninja reports the step as failed, and which lines are its own
    traced: bool = False  #: a shell's trace names the command
    exit_code: int | None = None  #: as ninja or make reports it


def find_failed_step(lines: Sequence[str]) -> FailedStep:
    """Return the first step that ninja or make reports as failed, else the last command of a shell's trace.

    Wrappers' indentation is removed.
    """
    lines = unwrap(lines)
    for number, line in enumerate(lines):
        if match := _FAILED.match(line):
            return _of_ninja(lines, number, match)
        if match := _SAMURAI.match(line):
            printed = list(takewhile(_belongs, lines[number + 1 :]))
            command = match["command"][:_LONGEST_COMMAND]
            code = int(match["code"])
            return FailedStep(lines=printed, reports=[line], command=command, known=True, exit_code=code)
    return _of_trace(_before_make_s_report(lines))


def _belongs(line: str) -> bool:
    return not _NEXT.match(line)


def _of_ninja(lines: Sequence[str], number: int, match: re.Match[str]) -> FailedStep:
    below = lines[number + 1 :]
    own = list(dropwhile(_of_another_pipe, below))
    printed = list(takewhile(_belongs, own))
    command = ""
    if printed:
        command = printed.pop(0)[:_LONGEST_COMMAND]
    if not printed:
        # a step of ninja's console pool prints while it runs, so before the report that it failed
        upwards = takewhile(_belongs, reversed(lines[:number]))
        printed = list(upwards)[::-1]
    return FailedStep(
        lines=printed,
        reports=[lines[number], *_below_ninja(below)],
        command=command,
        outputs=match["outputs"],
        known=True,
        exit_code=_exit_code(match),
    )


def _of_another_pipe(line: str) -> bool:
    """Return whether a line below ``FAILED:`` came late through stderr: ninja reports commands on stdout."""
    return bool(_TRACE.match(line) or _WARNING.match(line))


def _below_ninja(lines: Sequence[str]) -> Sequence[str]:
    """Return the last lines below those of a ninja that has stopped."""
    for number in reversed(range(len(lines))):
        if _ENDED.match(lines[number]):
            return lines[number + 1 :][-_LAST_LINES:]
    return ()


def _exit_code(match: re.Match[str]) -> int | None:
    if match["code"] is None:
        return None
    return int(match["code"])


def _before_make_s_report(lines: Sequence[str]) -> FailedStep:
    for number, line in enumerate(lines):
        if match := _MAKE.match(line):
            reports = [line, *lines[number + 1 :][-_LAST_LINES:]]
            return FailedStep(lines=lines[:number], reports=reports, exit_code=_exit_code(match))
    return FailedStep(lines=lines, reports=lines[-_LAST_LINES:])


def _of_trace(step: FailedStep) -> FailedStep:
    for number in reversed(range(len(step.lines))):
        command = _traced_command(step.lines, number)
        if command is None:
            continue
        above = step.lines[:number]
        below = step.lines[number + 1 :]
        printed = [line for line in below if not _TRACE.match(line)]
        early = [text for text in _echoed(below) if text in above and text not in printed]
        return FailedStep(
            lines=[*early, *printed],
            earlier=above,
            reports=step.reports,
            command=command[:_LONGEST_COMMAND],
            traced=True,
            exit_code=step.exit_code,
        )
    return step


def _traced_command(lines: Sequence[str], number: int) -> str | None:
    """Return the command that a line of a trace names, if it can have ended the build."""
    match = _TRACE.match(lines[number])
    if match is None or _SAYS_WHY.match(match["command"]):
        return None
    near = lines[max(0, number - _NEAR) : number + _NEAR + 1]
    if any(map(_DIFF.match, near)):
        return None
    return match["command"]


def _echoed(trace: Sequence[str]) -> Iterator[str]:
    """Yield the texts that traced commands echoed.

    A trace and the output of a quick command come through two pipes: the output may stand above the command.
    """
    for line in trace:
        match = _TRACE.match(line)
        if match is not None and match["command"].startswith("echo "):
            with suppress(ValueError):  # an unfinished quotation
                words = shlex.split(match["command"])
                yield " ".join(words[1:])


def unwrap(lines: Sequence[str]) -> list[str]:
    """Return lines as the innermost program printed them: without wrappers' indentation, diagnostics as text."""
    texts: list[str] = []
    for line in lines:
        texts += _diagnostics(line)
    shifted = _without_indentation(texts)
    without_numbers = _without_test_numbers(shifted)
    without_notes = _without_notes(without_numbers)
    return list(_without_bars(without_notes))


def _without_indentation(lines: Sequence[str]) -> Iterator[str]:
    """Remove the blanks that wrappers put before a program's output; wrappers may call each other."""
    indents = [0]  # in all, of each wrapper around the present line
    for line in lines:
        while line.strip() and not line.startswith(" " * indents[-1]):
            indents.pop()
        indent = indents[-1]
        shifted = line[indent:]
        yield shifted
        if match := _INDENTING.match(shifted):
            indents.append(indent + len(match["blanks"]) + len(match["corner"] or ""))


def _without_test_numbers(lines: Iterator[str]) -> Iterator[str]:
    prefixes: list[str] = []
    for line in lines:
        if match := _CTEST.match(line):
            prefixes.append(match["prefix"])
        prefix = next(filter(line.startswith, prefixes), "")
        yield line.removeprefix(prefix)


def _without_notes(lines: Iterator[str]) -> Iterator[str]:
    links = False
    for line in lines:
        if _RUSTC_LINKS.match(line):
            links = True
        elif line[:1] not in ("", " "):
            links = False
        if links:
            yield _RUSTC_NOTE.sub("", line)
        else:
            yield line


def _without_bars(lines: Iterator[str]) -> Iterator[str]:
    inside = False
    for line in lines:
        if _GROUP.match(line):
            inside = True
            yield "Traceback (most recent call last):"
        elif inside and _GROUP_BAR.match(line):
            yield _GROUP_BAR.sub("", line, count=1)
        else:
            inside = False
            yield line


def _diagnostics(line: str) -> list[str]:
    """Return a line, or the errors and warnings in it as GCC prints them as text."""
    if not _JSON.match(line):
        return [line]
    try:
        document = json.loads(line)
        if isinstance(document, dict):
            texts = _of_sarif(document)
        else:
            texts = _of_json(document)
    except (ValueError, RecursionError, KeyError, TypeError, IndexError, AttributeError):
        return [line]  # another program's JSON
    return texts or [line]


def _of_json(document: list[dict[str, Any]]) -> list[str]:
    texts = []
    for one in document:
        caret = one["locations"][0]["caret"]
        texts.append(f"{caret['file']}:{caret['line']}:{caret['column']}: {one['kind']}: {one['message']}")
    return texts


def _of_sarif(document: dict[str, Any]) -> list[str]:
    texts = []
    for run in document["runs"]:
        for one in run["results"]:
            place = one["locations"][0]["physicalLocation"]
            region = place["region"]
            where = f"{place['artifactLocation']['uri']}:{region['startLine']}:{region.get('startColumn', 1)}"
            texts.append(f"{where}: {one.get('level', 'error')}: {one['message']['text']}")
    return texts
