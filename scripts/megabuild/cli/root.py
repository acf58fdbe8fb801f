"""Where things lie."""

from __future__ import annotations

from pathlib import Path


def repository() -> Path:
    """Return the repository this package is a part of."""
    return Path(__file__).resolve().parents[3]


def display(path: Path) -> str:
    """Return a path for people: relative to the current folder where that is shorter."""
    try:
        relative = str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
    return relative if len(relative) < len(str(path)) else str(path)
