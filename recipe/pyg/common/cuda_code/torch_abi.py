"""What a library uses of torch: its stable C interface alone, or its C++, which is one minor version's.

torch promises that a library built with ``torch/csrc/stable`` runs with every later torch for about two years
("LibTorch Stable ABI" in its documentation). Such a library asks other libraries for C functions only: ``aoti_torch_*``
(torch/csrc/inductor/aoti_torch/c/shim.h) and ``torch_*`` (torch/csrc/stable/c/shim.h). The C++ wrappers around them and
torch/headeronly are inline: their code is in the library itself.
"""

from __future__ import annotations

import re

_C_INTERFACE = re.compile(r"(?:aoti_)?torch_\w+")
# Itanium C++ ABI: an identifier follows its length, so that `3c10` after a digit belongs to another name. A function of
# somebody else's that takes an at::Tensor counts, too: it goes by the same layout.
_CPP = re.compile(r"_Z.*(?<!\d)(?:3c10|4c10d|2at|5torch|6caffe2)|(?:_Z\d+)?THP")
_NESTED = re.compile(r"_Z(?:T[VIS])?N[KVRO]*")
_IDENTIFIER = re.compile(r"[1-9]\d*")


def cpp_symbols(undefined: frozenset[str]) -> tuple[str, ...]:
    """Return what a library needs of torch's C++, sorted, of everything that it needs."""
    return tuple(sorted(name for name in undefined if _CPP.match(name)))


def c_symbols(undefined: frozenset[str]) -> tuple[str, ...]:
    """Return what a library needs of torch's stable C interface, sorted, of everything that it needs."""
    return tuple(sorted(name for name in undefined if _C_INTERFACE.fullmatch(name)))


def readable(symbol: str) -> str:
    """Return a mangled symbol's name without what it takes and returns: ``c10::detail::f``.

    Nested names are identifiers, each after its length. What is of another form stays as it is.
    """
    start = _NESTED.match(symbol)
    names, position = [], start.end() if start else 0
    while found := _IDENTIFIER.match(symbol, position):
        position = found.end() + int(found[0])
        names.append(symbol[found.end() : position])
    return "::".join(names) if start and names else symbol
