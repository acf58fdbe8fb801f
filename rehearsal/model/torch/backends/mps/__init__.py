"""Apple's GPUs: never."""

from __future__ import annotations


def is_built() -> bool:
    """Say whether the build has them."""
    return False


def is_available() -> bool:
    """Say whether there is one."""
    return False
