"""The model's Python package: the small part of PyTorch's interface that tests of packages need, for doubles."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any


def _load_global_deps() -> None:
    """Open libtorch_global_deps with global symbols, as PyTorch does first of all."""
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    ctypes.CDLL(str(Path(__file__).parent / "lib" / f"libtorch_global_deps{suffix}"), mode=ctypes.RTLD_GLOBAL)


_load_global_deps()

from torch import _C  # noqa: E402
from torch._C import Tensor, get_num_threads, initial_seed, is_grad_enabled, manual_seed, set_num_threads  # noqa: E402
from torch._dtype import check, double, dtype, float64  # noqa: E402
from torch.version import __version__  # noqa: E402

_functions = _C._VariableFunctions
for _name in dir(_functions):
    if not _name.startswith("_"):
        globals()[_name] = getattr(_functions, _name)
del _name


def tensor(data: Any, *, dtype: dtype | None = None, device: str = "cpu", requires_grad: bool = False) -> Tensor:
    """Make a tensor from numbers in nested sequences, an array, or a copy of another tensor."""
    check(dtype, device)
    if isinstance(data, Tensor):
        made = data.detach().clone()
    elif hasattr(data, "__array__"):
        made = _C._tensor_from_numpy(data).clone()
    else:
        made = _C._tensor_from_data(data)
    return made.requires_grad_(requires_grad)


def _filled(made: Tensor, requires_grad: bool, dtype: dtype | None, device: str) -> Tensor:
    check(dtype, device)
    return made.requires_grad_(requires_grad)


def full(
    size: Sequence[int],
    fill_value: float,
    *,
    requires_grad: bool = False,
    dtype: dtype | None = None,
    device: str = "cpu",
) -> Tensor:
    """Make a tensor of one value."""
    return _filled(_functions.full(size, fill_value), requires_grad, dtype, device)


def ones(*size: Any, requires_grad: bool = False, dtype: dtype | None = None, device: str = "cpu") -> Tensor:
    """Make a tensor of ones."""
    return _filled(_functions.full(_C._parse_size(*size), 1), requires_grad, dtype, device)


def zeros(*size: Any, requires_grad: bool = False, dtype: dtype | None = None, device: str = "cpu") -> Tensor:
    """Make a tensor of zeros."""
    return _filled(_functions.full(_C._parse_size(*size), 0), requires_grad, dtype, device)


def rand(*size: Any, requires_grad: bool = False, dtype: dtype | None = None, device: str = "cpu") -> Tensor:
    """Draw from [0, 1)."""
    return _filled(_functions.rand(_C._parse_size(*size)), requires_grad, dtype, device)


def randn(*size: Any, requires_grad: bool = False, dtype: dtype | None = None, device: str = "cpu") -> Tensor:
    """Draw from the normal distribution."""
    return _filled(_functions.randn(_C._parse_size(*size)), requires_grad, dtype, device)


def eye(n: int, *, requires_grad: bool = False, dtype: dtype | None = None, device: str = "cpu") -> Tensor:
    """Make an identity matrix."""
    return _filled(_functions.eye(n), requires_grad, dtype, device)


def arange(*bounds: float, requires_grad: bool = False, dtype: dtype | None = None, device: str = "cpu") -> Tensor:
    """Count, with bounds as ``range`` takes them."""
    start, end, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    return _filled(_functions.arange(start, end, step), requires_grad, dtype, device)


def from_numpy(array: Any) -> Tensor:
    """Make a tensor on the memory of an array of doubles."""
    return _C._tensor_from_numpy(array)


def is_tensor(thing: object) -> bool:
    """Say whether something is a tensor."""
    return isinstance(thing, Tensor)


def equal(a: Tensor, b: Tensor) -> bool:
    """Say whether two tensors have the same shape and values."""
    return a.shape == b.shape and a.tolist() == b.tolist()


def allclose(a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8) -> bool:
    """Say whether two tensors agree within tolerances."""
    if a.numel() == 0:
        return a.shape == b.shape
    difference, bound = (a - b).abs(), b.abs() * rtol + atol
    return bool((difference - bound).max().item() <= 0)


class no_grad:
    """Nothing is recorded for gradients in a ``with`` block of this."""

    def __enter__(self) -> None:
        self._former = is_grad_enabled()
        _C._set_grad_enabled(False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _C._set_grad_enabled(self._former)


from torch import __config__, backends, cuda, distributed, linalg, utils, version  # noqa: E402
from torch import _tensor as _tensor  # noqa: E402

__all__ = [
    "Tensor",
    "__config__",
    "__version__",
    "allclose",
    "arange",
    "backends",
    "cuda",
    "distributed",
    "double",
    "dtype",
    "equal",
    "eye",
    "float64",
    "from_numpy",
    "full",
    "get_num_threads",
    "initial_seed",
    "is_grad_enabled",
    "is_tensor",
    "linalg",
    "manual_seed",
    "no_grad",
    "ones",
    "rand",
    "randn",
    "set_num_threads",
    "tensor",
    "utils",
    "version",
    "zeros",
]
