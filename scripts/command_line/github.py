"""GitHub's logs and step summaries: workflow commands (docs.github.com, "Workflow commands for GitHub Actions")."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from groundwork.text import duration, plain, size
from megabuild.run.summary import PackageResult

END_OF_GROUP = "::endgroup::"
#: ``path:line: error:`` or ``path:line:column: fatal error:``, as compilers write it.
_PLACE = re.compile(r"(?m)^\s*(?P<file>[^\s:]+):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<message>.*)$")
_COMMAND = re.compile(r"(?m)^(\s*)::")
_MARKS = {"built": "built", "skipped": "was there", "failed": "**failed**", "missing": "not built"}


def runs_here(environ: Mapping[str, str]) -> bool:
    """Say whether this is a step of a workflow on GitHub, or on what understands the same commands."""
    return environ.get("GITHUB_ACTIONS") == "true"


def group(title: str) -> str:
    """Return the line that begins a group."""
    return f"::group::{_escaped(plain(title))}"


def notice(message: str) -> str:
    """Return the command for what is to be seen on the page of the run, and is no error."""
    return f"::notice::{_escaped(message)}"


def error(message: str) -> str:
    """Return the command for an error: with file and line where a compiler named them, for the page of the run."""
    place = _PLACE.search(message)
    if place is None:
        return f"::error::{_escaped(message)}"
    file, line = _escaped(place["file"], more=":,"), place["line"]
    headline = message.split("\n", 1)[0]
    return f"::error file={file},line={line}::{_escaped(headline)}: {_escaped(place['message'])}"


def harmless(text: str) -> str:
    """Return text, such as the last lines of a build, in which GitHub sees no commands."""
    return _COMMAND.sub(r"\1: :", text)


def _escaped(text: str, more: str = "") -> str:
    for sign in "%\r\n" + more:
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text


def add_to_summary(
    config: str,
    rows: Sequence[PackageResult],
    seconds: float,
    error: str,
    environ: Mapping[str, str],
    *,
    goes_on: bool = False,
) -> None:
    """Append a table of packages to the step's summary, where there is one; ``goes_on`` says that the next run does."""
    path = environ.get("GITHUB_STEP_SUMMARY", "")
    if not path:
        return
    took = f" in {duration(seconds)}" if seconds else ""
    end = "to be continued" if goes_on else "failed" if error else "done"
    lines = [f"### {config}: {end}{took}", ""]
    if rows:
        lines += ["| package | status | size | time |", "|---|---|---:|---:|"]
    lines += [
        f"| {_cell(row.package.label)} | {_MARKS.get(row.status, row.status)}"
        f" | {size(row.size) if row.size else ''} | {duration(row.seconds) if row.seconds >= 1 else ''} |"
        for row in rows
    ]
    if error:
        lines += [
            "",
            *(f"    {plain(line)}" for line in error.splitlines()),
        ]  # a block of code: nothing is markup
    with Path(path).open("a", encoding="utf-8") as file:
        file.write("\n".join([*lines, "", ""]))


def _cell(text: str) -> str:
    return plain(text).replace("|", r"\|").replace("<", "&lt;")
