"""Text helpers that every layer uses."""

from __future__ import annotations

import re

#: Control characters (C0, DEL, C1), line and paragraph separators, those that change the direction of writing, and
#: bytes that were no text.
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
_STYLE = re.compile("\x1b\\[[0-9;]*m")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 wheel``, ``7 wheels``, ``2 processes``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}{'es' if noun.endswith('s') else 's'}"


def plain(text: str) -> str:
    """Return untrusted text on one line, without terminal control and bidirectional characters."""
    without = _STYLE.sub("", text)
    return _STEERING.sub(lambda found: " " if not found[0].strip("\t\n\r ") else "?", without)
