"""How this build was made."""

from __future__ import annotations

from torch import _C


def show() -> str:
    """Give the build's compiler, BLAS, CUDA and options."""
    return _C._show_config()


def parallel_info() -> str:
    """Give what decides the number of threads."""
    return _C._parallel_info()
