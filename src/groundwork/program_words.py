"""The words with which users start megabuild, for the commands in hints and summaries."""

from __future__ import annotations

from groundwork.checkout import ROOT, is_checkout
from groundwork.text import display


def program_words() -> tuple[str, ...]:
    """Return ``python3 scripts/megabuild`` in a checkout, with its path from the current folder, else ``megabuild``."""
    if is_checkout():
        return ("python3", display(ROOT / "scripts" / "megabuild"))
    return ("megabuild",)
