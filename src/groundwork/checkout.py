"""The repository that the program runs from, unless it is installed."""

from __future__ import annotations

from pathlib import Path

#: The folder of the repository; of an installed program, a folder of its environment.
ROOT = Path(__file__).resolve().parents[2]


def is_checkout() -> bool:
    """Return whether the program runs from the repository; else it is installed in an environment."""
    return (ROOT / "build-locally.py").is_file()
