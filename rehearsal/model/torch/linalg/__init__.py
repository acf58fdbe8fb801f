"""Linear algebra."""

from __future__ import annotations

from torch._C._linalg import solve

__all__ = ["solve"]
