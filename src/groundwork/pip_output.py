"""Finds the cause in the output of a pip that failed. Standard library only."""

from __future__ import annotations

import re

from groundwork import redact

#: pip reports an index's failure in a warning, not in its error, and once for each attempt.
_NO_ANSWER = re.compile(
    r"((?:connection broken by|The repository located at|40[13] Error|Could not fetch URL|Cannot determine).*)"
)
#: The system's words in such a warning, inside the names of several exceptions.
_SYSTEM = re.compile(r"\[Errno -?\d+\] (?P<text>[^'\")]+)")
_TIMED_OUT = re.compile(r"timed? ?out", re.IGNORECASE)
_LACKING = re.compile(r"No matching distribution found for (?P<package>[^\s;(]+)")
_NOISE = ("warning:", "[notice]", "note:", "hint:")


def explain(output: str) -> str:
    """Return the cause as one line: ``click==8.1.8: Network is unreachable``; else pip's errors or last lines."""
    printed = [line for line in output.splitlines() if line.strip()]
    lines = [line for line in printed if not line.lower().startswith(_NOISE)]
    errors = _errors(lines)
    causes = (errors or lines)[-4:]
    reason = _reason(printed)
    if reason:
        lacking = _LACKING.search(" ".join(errors))
        if lacking is not None:
            return f"{lacking['package']}: {reason}"
        causes.insert(0, reason)
    return redact.text("; ".join(cause.strip() for cause in causes)) or "no output"


def _errors(lines: list[str]) -> list[str]:
    """Return the lines that begin an error, and indented lines below them, such as a file with its hashes."""
    errors: list[str] = []
    inside = False
    for line in lines:
        if line.lower().startswith(("error:", "fatal error:")):
            inside = True
        elif not line[0].isspace():
            inside = False
        if inside:
            errors.append(line)
    return errors


def _reason(lines: list[str]) -> str:
    """Return why an index did not answer the last time, or an empty string."""
    for line in reversed(lines):
        match = _NO_ANSWER.search(line)
        if match is None:
            continue
        if system := _SYSTEM.search(match[1]):
            return system["text"].strip()
        if _TIMED_OUT.search(match[1]):
            return "the index did not answer in time"
        return redact.text(match[1])
    return ""
