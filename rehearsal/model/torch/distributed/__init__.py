"""Several processes."""

from __future__ import annotations

from torch import _C


def is_available() -> bool:
    """Return whether this build has torch.distributed."""
    return "USE_DISTRIBUTED=1" in _C._show_config()
