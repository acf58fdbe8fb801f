"""Text helpers that every layer uses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

#: Control characters (C0, DEL, C1), line and paragraph separators, those that change the direction of writing, and
#: bytes that were no text.
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
#: Colours, erased lines and links, as compilers and build tools print them.
_STYLE = re.compile("\x1b\\[[0-9;]*[mK]|\x1b\\]8;[^\x07\x1b]*(?:\x07|\x1b\\\\)")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 wheel``, ``7 wheels``, ``2 processes``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}{'es' if noun.endswith('s') else 's'}"


def plain(text: str) -> str:
    """Return untrusted text on one line, without terminal control and bidirectional characters."""
    without = _STYLE.sub("", text)
    return _STEERING.sub(lambda found: " " if not found[0].strip("\t\n\r ") else "?", without)


def meant(word: str, names: Iterable[str], *, otherwise: str = "") -> str:
    """Return which of a closed list's names somebody may have meant, ``did you mean scatter?``, else all of them.

    ``otherwise`` takes the place of all of them where there are too many.
    """
    known = list(names)
    close = get_close_matches(word.lower(), [name.lower() for name in known], n=2)
    if close:
        return f"did you mean {' or '.join(name for name in known if name.lower() in close)}?"
    return otherwise or f"there are: {', '.join(known)}"
