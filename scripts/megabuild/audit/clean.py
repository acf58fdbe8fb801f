"""Other people's text made harmless: what would steer a terminal, or turn a line around, becomes a question mark."""

from __future__ import annotations

import re
from dataclasses import replace

from megabuild.audit.model import Finding, Outcome

# Control characters (C0, DEL, C1), line and paragraph separators, and those that change the direction of writing.
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]+")


def clean(outcome: Outcome) -> Outcome:
    """Return what a source found, without characters that steer a terminal."""
    return replace(
        outcome, trouble=text(outcome.trouble), findings=tuple(_finding(one) for one in outcome.findings)
    )


def text(value: str) -> str:
    """Return a text on one line."""
    return _STEERING.sub(lambda found: " " if not found[0].strip("\t\n\r ") else "?", value)


def _finding(finding: Finding) -> Finding:
    origin = finding.origin
    return replace(
        finding,
        name=text(finding.name),
        value=text(finding.value),
        scope=text(finding.scope),
        trouble=text(finding.trouble),
        details={text(key): text(value) for key, value in finding.details.items()},
        origin=replace(origin, file=text(origin.file), url=text(origin.url), date=text(origin.date)),
    )
