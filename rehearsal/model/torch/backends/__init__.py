"""Libraries behind the computations."""

from __future__ import annotations

from torch.backends import cuda, cudnn, mkldnn, mps

__all__ = ["cuda", "cudnn", "mkldnn", "mps"]
