"""Functions of functions of tensors."""

from __future__ import annotations

from collections.abc import Callable

import torch  # torch._C must be loaded before functorch's own module

from functorch import _C

__all__ = ["vmap"]


def vmap(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Make a function of one sample one of a batch: along the first dimension."""

    def batched(batch: torch.Tensor) -> torch.Tensor:
        return _C._stack([function(sample) for sample in _C._unstack(batch)])

    return batched
