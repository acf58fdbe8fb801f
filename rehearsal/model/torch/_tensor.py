"""Add Python's operators to ``Tensor``, and the library's operators as methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import _C
from torch._C import Tensor

_functions = _C._VariableFunctions


def _method(name: str) -> Callable[..., Tensor]:
    function = getattr(_functions, name)
    return lambda self, *args: function(self, *args)


def _array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
    return _C._tensor_to_numpy(self).astype(dtype or float, copy=bool(copy))


for _name in _C._methods:
    setattr(Tensor, _name, _method(_name))
for _operator in ("add", "sub", "mul", "matmul", "ne", "neg"):
    setattr(Tensor, f"__{_operator}__", _method(_operator))
Tensor.__radd__ = lambda self, other: _functions.add(other, self)
Tensor.__rsub__ = lambda self, other: _functions.sub(other, self)
Tensor.__rmul__ = lambda self, other: _functions.mul(other, self)
Tensor.__float__ = Tensor.item
Tensor.__bool__ = lambda self: self.item() != 0
Tensor.__array__ = _array
Tensor.numpy = lambda self: _C._tensor_to_numpy(self)
