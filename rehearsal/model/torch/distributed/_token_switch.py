"""Exchange of tokens between GPUs, by a module that not every build has."""

from __future__ import annotations


def is_available() -> bool:
    """Return whether this build has the module, and this machine several GPUs."""
    try:
        from torch import _nccl_ep
    except ImportError:
        return False
    return bool(_nccl_ep.is_available())
