"""Linear algebra."""

from __future__ import annotations

from torch._C._linalg import cholesky, det, eigvalsh, inv, matrix_exp, qr_r, solve, svdvals

__all__ = ["cholesky", "det", "eigvalsh", "inv", "matrix_exp", "qr_r", "solve", "svdvals"]
