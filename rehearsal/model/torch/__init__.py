"""The model's Python package: the part of PyTorch's interface that the packages' tests need, for doubles only."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any


def _load_global_deps() -> None:
    """Open libtorch_global_deps first, with global symbols, as PyTorch does."""
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    ctypes.CDLL(str(Path(__file__).parent / "lib" / f"libtorch_global_deps{suffix}"), mode=ctypes.RTLD_GLOBAL)


_load_global_deps()

from torch import _C  # noqa: E402
from torch import _tensor as _tensor  # noqa: E402
from torch._C import Tensor  # noqa: E402
from torch._C._VariableFunctions import add, any, eye, matmul, mul, ne, neg, sub, sum, t, tanh  # noqa: E402
from torch.version import __version__  # noqa: E402


def tensor(data: Any, *, requires_grad: bool = False) -> Tensor:
    """Make a tensor from numbers in nested sequences."""
    shape, values = [], [data]
    while isinstance(values[0], (list, tuple)):
        shape.append(len(values[0]))
        values = [value for row in values for value in row]
    return Tensor(shape, values).requires_grad_(requires_grad)


def ones(*size: int, requires_grad: bool = False) -> Tensor:
    """Make a tensor of ones."""
    return _C._VariableFunctions.ones(size).requires_grad_(requires_grad)


def rand(*size: int, requires_grad: bool = False) -> Tensor:
    """Make a tensor of random numbers from [0, 1)."""
    return _C._VariableFunctions.rand(size).requires_grad_(requires_grad)


from torch import __config__, backends, cuda, distributed, linalg, utils, version  # noqa: E402

__all__ = [
    "Tensor", "__config__", "__version__", "add", "any", "backends", "cuda", "distributed", "eye", "linalg", "matmul",
    "mul", "ne", "neg", "ones", "rand", "sub", "sum", "t", "tanh", "tensor", "utils", "version",
]  # fmt: skip
