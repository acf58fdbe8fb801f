"""Rules to find the versions that upstream's CI builds with and ships. The files are parsed, never executed.

The audit reports a rule that no longer matches: look up the file at the new version, and add a rule before the old one.
Of the rules with the same name, role and package, the first match counts. Checked by hand against upstream's files from
2.11 to 2.13.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_CUDA = "cuda"  # the group of CUDA versions
_UNREADABLE = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)


class NotInFile(Exception):
    """A file does not contain the expected values; the message follows the file's name and a colon."""


@dataclass(frozen=True, kw_only=True)
class CiValue:
    """One value as upstream writes it."""

    text: str  #: ``9.20.0.48``, ``7.5, 9.0``
    line: int  #: counted from 1
    groups: Mapping[str, str] = field(default_factory=dict)  #: conditions: ``cuda``, ``machine``


Reader = Callable[[str], Sequence[CiValue]]


@dataclass(frozen=True)
class CiRule:
    """A place in upstream's tree that has one dependency's version in one role."""

    name: str  #: of the dependency, as in name_map.yaml
    what: str  #: the value's role: ``in the image of tests``
    file: str  #: path in upstream's tree
    read: Reader
    packages: tuple[str, ...] = ("pytorch",)  #: packages whose trees have the file


def lines(pattern: str) -> Reader:
    """Return a reader of the group ``value``, without quotes, of every matching line that is no comment."""

    def read(text: str) -> Sequence[CiValue]:
        values = []
        for number, line in enumerate(text.splitlines(), start=1):
            match = None if line.lstrip().startswith("#") else re.search(pattern, line)
            if match is not None:
                values.append(CiValue(text=re.sub(r"[\"']", "", match["value"]), line=number))
        if not values:
            raise NotInFile(f"no line matches {pattern!r}")
        return values

    return read


def literal(variable: str, *keys: str) -> Reader:
    """Return a reader of the literal that a Python module assigns to `variable`, through ast: nothing is executed.

    A dictionary gives one value per key. `keys` name the groups for its keys, outermost first; the group ``cuda`` takes
    versions only. A list or set of plain values becomes one comma-separated value. A dictionary without a value raises
    NotInFile: upstream may have changed its keys.
    """

    def read(text: str) -> Sequence[CiValue]:
        values: tuple[CiValue, ...] = ()
        try:
            assigned = _find_assignment(variable, ast.parse(text))
            if assigned is not None:
                values = tuple(_leaves(ast.literal_eval(assigned.value), assigned.line, {}, keys))
        except _UNREADABLE as error:
            raise NotInFile(f"{variable} cannot be read ({type(error).__name__})") from error
        if not values:
            raise NotInFile(f"no value assigned to {variable}")
        return values

    return read


@dataclass(frozen=True)
class Assignment:
    """An expression that a module assigns, and the line of the statement."""

    value: ast.expr
    line: int


def _find_assignment(variable: str, module: ast.Module) -> Assignment | None:
    """Return what a module assigns to a variable, at last."""
    for statement in reversed(module.body):
        match statement:
            case ast.Assign(targets=targets, value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                targets = [target]
            case _:
                continue
        if variable in map(ast.unparse, targets):
            return Assignment(value, statement.lineno)
    return None


def _leaves(value: Any, line: int, groups: Mapping[str, str], keys: tuple[str, ...]) -> Iterator[CiValue]:
    """Yield the values in nested dictionaries, each with the keys that lead to it by their names."""
    if not isinstance(value, dict):
        yield CiValue(text=_joined(value), line=line, groups=groups)
        return
    for key, item in value.items():
        if not keys:
            yield from _leaves(item, line, groups, ())
        elif keys[0] != _CUDA or re.fullmatch(r"\d+\.\d+", str(key)):  # skips xpu, cpu
            yield from _leaves(item, line, {**groups, keys[0]: str(key)}, keys[1:])


def _joined(value: Any) -> str:
    if isinstance(value, set):
        value = sorted(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)


_MATRIX = ".github/scripts/generate_binary_build_matrix.py"
_TRITON = ".ci/docker/triton_version.txt"
_REQUIREMENTS = ".ci/docker/requirements-ci.txt"
_PYG_MATRIX = ".github/workflows/utils/full_matrix_linux.json"
_EXTENSION_MATRIX = ".github/workflows/building.yml"
_PYG = ("pyg-lib",)
_EXTENSIONS = ("pytorch_scatter", "pytorch_sparse", "pytorch_cluster", "pytorch_spline_conv")
_SHIPPED = "of the wheels"
_REQUIRED = "required by the wheels"
_TESTED = "in the image of tests"
_BUILT_FOR = "wheels are built for"
_NUMBERS = r"(?P<value>\d+(?:\.\d+)+)"
_LIST = r"\[(?P<value>[^\]]+)\]"
_TOOLS = ("cmake", "ninja", "packaging", "setuptools")

PINS = (
    CiRule("cuda", _SHIPPED, _MATRIX, literal("CUDA_ARCHES_FULL_VERSION", "cuda")),
    CiRule("triton", _REQUIRED, _TRITON, lines(rf"^{_NUMBERS}\s*$")),
    CiRule("python", _BUILT_FOR, _MATRIX, literal("FULL_PYTHON_VERSIONS")),
    CiRule("eigen", "fetched for the build", "third_party/eigen_pin.txt", lines(rf"^{_NUMBERS}\s*$")),
    *(CiRule(tool, _TESTED, _REQUIREMENTS, lines(rf"^{tool}=={_NUMBERS}")) for tool in _TOOLS),
    CiRule("pytorch", _BUILT_FOR, _PYG_MATRIX, lines(rf'"torch-version":\s*"{_NUMBERS}"'), _PYG),
    CiRule("python", _BUILT_FOR, "pyproject.toml", lines(r'^build = "(?P<value>cp[^"]+)"'), _PYG),
    CiRule("cuda", _SHIPPED, _EXTENSION_MATRIX, lines(rf"^\s+cuda-version:\s*{_LIST}"), _EXTENSIONS),
    CiRule("pytorch", _BUILT_FOR, _EXTENSION_MATRIX, lines(rf"^\s+torch-version:\s*{_LIST}"), _EXTENSIONS),
    CiRule("python", _BUILT_FOR, _EXTENSION_MATRIX, lines(rf"^\s+python-version:\s*{_LIST}"), _EXTENSIONS),
)
NAMED = frozenset(rule.name for rule in PINS)

_ARCHS = "gpu-architectures"
_ARCHS_FILE = ".ci/manywheel/build_env_setup.py"
#: The GPU architectures that upstream ships. Those up to 2.12 are not read: a script computed them.
ARCH_LISTS = (
    CiRule(_ARCHS, _SHIPPED, _ARCHS_FILE, literal("TORCH_CUDA_ARCH_LIST_TABLE", "cuda", "machine")),
    CiRule(_ARCHS, _SHIPPED, _MATRIX, literal("TORCH_CUDA_ARCH_LIST", "cuda", "machine")),
)
