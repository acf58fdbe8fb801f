"""Which packages need what a step would take: they import Triton, or compile with PyTorch's and CUDA's headers.

A package can be imported and yet be of no use: flash-linear-attention loads its modules as they are asked for, and 196
of them begin with ``import triton``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gpu_tools.sizes.inside import classify_path
from gpu_tools.sizes.tree import Kind
from gpu_tools.slim.features import compiles_nothing
from gpu_tools.slim.listing import Contents
from gpu_tools.slim.own_tests import is_in_tests, parse
from gpu_tools.slim.unused_nvidia import is_nvidia

_TRITON, _COMPILER = "triton", "torch.utils.cpp_extension"
_WORDS = re.compile(rb"^[ \t]*(?:import|from)[ \t][^\n]*\b(?:triton|cpp_extension)\b", re.MULTILINE)
_TRITONS_OWNERS = frozenset({"triton", "pytorch-triton", "torch", "pytorch", "libtorch"})
_COMPILERS_OWNERS = re.compile(r"(?:nvidia-)?cuda-(?:nvcc|cccl|crt)(?:-.*)?")


@dataclass(frozen=True, kw_only=True)
class Users:
    """Packages that need something, and packages that do without it where it is not there."""

    needing: tuple[str, ...]
    trying: tuple[str, ...]


@lru_cache(maxsize=1)
def triton_users(contents: Contents) -> Users:
    """Return the packages that use Triton, PyTorch aside."""
    requirers = {owner for owner, names in contents.requires.items() if names & {"triton", "pytorch-triton"}}
    return _users(requirers - _TRITONS_OWNERS, _importers(contents)[_TRITON])


@lru_cache(maxsize=1)
def compiler_users(contents: Contents) -> Users:
    """Return the packages that compile as they run, or say that they do.

    NVIDIA's packages with headers and modules of their own do (cuda-cccl, nvidia-cutlass).
    """
    requirers = {
        owner
        for owner, names in contents.requires.items()
        if any(map(_COMPILERS_OWNERS.fullmatch, names)) and not (is_nvidia(owner) or compiles_nothing(owner))
    }
    theirs = {path: owner for path, owner in contents.owners.items() if is_nvidia(owner)}
    modules = {owner for path, owner in theirs.items() if path.endswith(".py") and contents.every[path].size}
    headers = {owner for path, owner in theirs.items() if classify_path(path) == Kind.HEADERS}
    requirers |= modules & headers
    return _users(requirers, _importers(contents)[_COMPILER])


def _users(requirers: set[str], importers: Mapping[str, bool]) -> Users:
    needing = requirers | {owner for owner, needs in importers.items() if needs}
    return Users(needing=tuple(sorted(needing)), trying=tuple(sorted(importers.keys() - needing)))


@lru_cache(maxsize=1)
def _importers(contents: Contents) -> Mapping[str, Mapping[str, bool]]:
    """Return by module the packages that import it, and whether one of their modules fails without it.

    Files of no package are there by their path.
    """
    found: dict[str, dict[str, bool]] = {_TRITON: {}, _COMPILER: {}}
    for path, entry in contents.every.items():
        owner = contents.owners.get(path, path)
        if not path.endswith(".py") or entry.is_link or owner in _TRITONS_OWNERS or is_in_tests(path):
            continue
        content = entry.read()
        if _WORDS.search(content):
            for name, needs in _imports(getattr(parse(content), "body", ())):
                for module, owners in found.items():
                    if f"{name}.".startswith(f"{module}."):
                        owners[owner] = owners.get(owner, False) or needs
    return found


def _imports(body: Sequence[ast.stmt], needs: bool = True) -> Iterator[tuple[str, bool]]:
    """Return the modules that statements import, and whether the module that they are in fails without them."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((one.name, needs) for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((f"{node.module}.{one.name}", needs) for one in node.names)
        elif isinstance(node, ast.If):
            condition = ast.unparse(node.test)
            if "TYPE_CHECKING" not in condition:
                yield from _imports(node.body, needs and "triton" not in condition.lower())
            yield from _imports(node.orelse, needs)
        else:
            lazily = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or (
                bool(node.handlers)
                if isinstance(node, ast.Try)
                else isinstance(node, ast.With) and "suppress(" in ast.unparse(node.items[0].context_expr)
            )
            for part in ("body", "handlers", "orelse", "finalbody"):
                yield from _imports(getattr(node, part, ()), needs and not lazily)
