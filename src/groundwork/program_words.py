"""The words with which users start megabuild, for the commands in hints and summaries."""

from __future__ import annotations

from pathlib import Path

from groundwork.text import display

#: The program of a checkout; the installed one has no such file.
_PROGRAM = Path(__file__).resolve().parents[2] / "scripts" / "megabuild"


def program_words() -> tuple[str, ...]:
    """Return ``python3 scripts/megabuild`` in a checkout, with its path from the current folder, else ``megabuild``."""
    if _PROGRAM.is_file():
        return ("python3", display(_PROGRAM))
    return ("megabuild",)
