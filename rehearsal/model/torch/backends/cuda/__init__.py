"""CUDA."""

from __future__ import annotations

from torch import _C


def is_built() -> bool:
    """Say whether this build has the CUDA libraries."""
    return _C._cuda_isBuilt()


def preferred_linalg_library() -> str:
    """Name the library that libtorch_cuda_linalg solves with."""
    return _C._cuda_linalgBackend()
