"""Words that every layer uses in what it tells."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 wheel``, ``7 wheels``, ``2 processes``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}{'es' if noun.endswith('s') else 's'}"
