"""Where things lie."""

from __future__ import annotations

from pathlib import Path

from groundwork.text import display as display


def repository() -> Path:
    """Return the repository this package is a part of."""
    return Path(__file__).resolve().parents[2]
