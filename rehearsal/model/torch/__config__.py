"""How this build was made."""

from __future__ import annotations

from torch import _C


def show() -> str:
    """Give the build's compiler, BLAS, CUDA and options."""
    return _C._show_config()
