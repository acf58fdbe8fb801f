"""Libraries behind the computations."""

from __future__ import annotations

from torch.backends import cuda as cuda
