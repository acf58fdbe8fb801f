"""Detects whether a library uses torch's stable C interface only, or its C++, which changes with each minor version.

torch promises that a library built with ``torch/csrc/stable`` runs with every later torch for about two years
("LibTorch Stable ABI" in its documentation). Such a library imports C functions only: ``aoti_torch_*``
(torch/csrc/inductor/aoti_torch/c/shim.h) and ``torch_*`` (torch/csrc/stable/c/shim.h). The C++ wrappers around them and
torch/headeronly are inline: their code is in the library itself.
"""

from __future__ import annotations

import re

_C_INTERFACE = re.compile(r"(?:aoti_)?torch_\w+")
# Itanium C++ ABI: an identifier follows its length, so `3c10` after a digit belongs to another name. A third library's
# function that takes an at::Tensor counts too: it depends on the same layout.
_CPP = re.compile(r"_Z.*(?<!\d)(?:3c10|4c10d|2at|5torch|6caffe2)|(?:_Z\d+)?THP")
_NESTED = re.compile(r"_Z(?:T[VIS])?N[KVRO]*")
_IDENTIFIER = re.compile(r"[1-9]\d*")


def cpp_symbols(undefined: frozenset[str]) -> tuple[str, ...]:
    """Return the sorted undefined symbols that belong to torch's C++."""
    return tuple(sorted(name for name in undefined if _CPP.match(name)))


def c_symbols(undefined: frozenset[str]) -> tuple[str, ...]:
    """Return the sorted undefined symbols that belong to torch's stable C interface."""
    return tuple(sorted(name for name in undefined if _C_INTERFACE.fullmatch(name)))


def readable(symbol: str) -> str:
    """Return a mangled symbol's name without parameters: ``c10::detail::f``.

    A nested name is a sequence of lengths and identifiers. A symbol of another form is returned unchanged.
    """
    start = _NESTED.match(symbol)
    if start is None:
        return symbol
    names = []
    position = start.end()
    while length := _IDENTIFIER.match(symbol, position):
        position = length.end() + int(length[0])
        names.append(symbol[length.end() : position])
    return "::".join(names) or symbol
