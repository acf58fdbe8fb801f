"""CUDA."""

from __future__ import annotations

from torch import _C


def is_built() -> bool:
    """Return whether this build has the CUDA libraries."""
    return _C._cuda_isBuilt()


def preferred_linalg_library() -> str:
    """Return the name of the library with which libtorch_cuda_linalg solves."""
    return _C._cuda_linalgBackend()
