"""Describe this build."""

from __future__ import annotations

from torch import _C


def show() -> str:
    """Return the build's compiler, BLAS, CUDA and options as text."""
    return _C._show_config()
