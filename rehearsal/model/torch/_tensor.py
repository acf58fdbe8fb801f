"""Adds to ``Tensor`` what is easier said in Python: operators, and methods that are operators of the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import _C
from torch._C import Tensor
from torch._dtype import check, dtype, float64

_functions = _C._VariableFunctions


def _method(name: str) -> Callable[..., Tensor]:
    function = getattr(_functions, name)

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return function(self, *args, **kwargs)

    method.__name__ = name
    return method


def _sum(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return _functions.sum(self) if dim is None else _functions.sum_dim(self, dim, keepdim)


def _reshape(self: Tensor, *shape: Any) -> Tensor:
    return _functions.reshape(self, _C._parse_size(*shape))


def _size(self: Tensor, dim: int | None = None) -> Any:
    return self.shape if dim is None else self.shape[dim]


def _to(self: Tensor, target: Any = None, *, dtype: dtype | None = None, device: str = "cpu") -> Tensor:
    if target is not None:
        dtype, device = (target, device) if target is float64 else (dtype, target)
    check(dtype, device)
    return self


def _cuda(self: Tensor) -> Tensor:
    raise RuntimeError("No CUDA GPUs are available" if _C._cuda_isBuilt() else "Torch not compiled with CUDA enabled")


def _array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
    array = _C._tensor_to_numpy(self)
    return array if dtype is None else array.astype(dtype)


def _set_grad(self: Tensor, value: None) -> None:
    if value is not None:
        raise TypeError("a gradient can only be set to None")
    self._clear_grad()


for _name in _C._methods:
    setattr(Tensor, _name, _method(_name))
for _operator in ("add", "sub", "mul", "matmul", "pow", "eq", "ne", "lt", "gt"):
    setattr(Tensor, f"__{_operator}__", _method(_operator))
Tensor.tolist = lambda self: _C._tensor_to_list(self)
Tensor.__truediv__ = _method("div")
Tensor.__neg__ = _method("neg")
Tensor.__radd__ = lambda self, other: _functions.add(other, self)
Tensor.__rsub__ = lambda self, other: _functions.sub(other, self)
Tensor.__rmul__ = lambda self, other: _functions.mul(other, self)
Tensor.__rtruediv__ = lambda self, other: _functions.div(other, self)
Tensor.__float__ = Tensor.item
Tensor.__bool__ = lambda self: self.item() != 0
Tensor.__hash__ = object.__hash__  # by identity, as defining == took it away
Tensor.__len__ = lambda self: self.shape[0]
Tensor.__array__ = _array
Tensor.numpy = lambda self: _C._tensor_to_numpy(self)
Tensor.cpu = lambda self: self
Tensor.cuda = _cuda
Tensor.to = _to
Tensor.sum = _sum
Tensor.reshape = Tensor.view = _reshape
Tensor.size = _size
Tensor.t = lambda self: _functions.transpose(self, 0, 1)
Tensor.T = property(Tensor.t)
Tensor.grad = property(Tensor.grad.fget, _set_grad)
Tensor.dtype = property(lambda self: float64)
Tensor.is_cuda = property(lambda self: False)
Tensor.device = property(lambda self: "cpu")
