"""Several processes."""

from __future__ import annotations

from torch import _C


def is_available() -> bool:
    """Say whether this build has it."""
    return "USE_DISTRIBUTED=1" in _C._show_config()
