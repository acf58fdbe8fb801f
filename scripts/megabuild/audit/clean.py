"""Other people's text made harmless: what would steer a terminal, or turn a line around, becomes a question mark."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from megabuild.audit.facts import Outcome

# Control characters (C0, DEL, C1), line and paragraph separators, those that change the direction of writing, and bytes
# that were no text.
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")


def clean(outcome: Outcome) -> Outcome:
    """Return what a source found, without characters that steer a terminal."""
    return msgspec.convert(_cleaned(msgspec.to_builtins(outcome)), Outcome)


def text(value: str) -> str:
    """Return a text on one line."""
    return _STEERING.sub(lambda found: " " if not found[0].strip("\t\n\r ") else "?", value)


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, (list, tuple)):
        return [_cleaned(item) for item in value]
    return {key: _cleaned(item) for key, item in value.items()} if isinstance(value, dict) else value
