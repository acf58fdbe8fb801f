"""Where PyTorch's CI writes down what it builds with and ships. Read by the audit, never executed.

A rule that no longer fits is reported, not left out: look the file up at the new version and add a rule before the old
one. Rules of one name are ways in which upstream writes the same thing: the first that yields
something counts. Checked by hand against upstream's files from 2.11 to 2.13.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_UNREADABLE = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)


class NotInFile(Exception):
    """A file does not contain the expected values; the message is the end of a sentence."""


@dataclass(frozen=True, kw_only=True)
class CiValue:
    """One value as upstream writes it."""

    text: str  #: ``9.20.0.48``, ``7.5, 9.0``
    line: int  #: counted from 1
    groups: Mapping[str, str] = field(default_factory=dict)  #: conditions: ``cuda``, ``machine``


Reader = Callable[[str], Sequence[CiValue]]


@dataclass(frozen=True)
class CiRule:
    """Where one dependency's version is written."""

    name: str  #: of the dependency, as in name_map.yaml
    file: str  #: path in upstream's tree
    read: Reader


def lines(pattern: str) -> Reader:
    """Read every line that matches a pattern: its group ``value``."""

    def read(text: str) -> Sequence[CiValue]:
        matches = [
            (number, re.search(pattern, line)) for number, line in enumerate(text.splitlines(), start=1)
        ]
        values = [CiValue(text=match["value"], line=number) for number, match in matches if match]
        if not values:
            raise NotInFile(f"has no line that fits {pattern!r}")
        return values

    return read


def literal(variable: str, *keys: str) -> Reader:
    """Read what a Python module assigns to a name at its top level, through ast: nothing is executed.

    A dictionary gives a value for each key; `keys` are the names of the groups that keys become, outermost first, of
    which ``cuda`` takes versions only. A list or a set of plain values is one value, with commas between.
    """

    def leaves(node: ast.expr, groups: dict[str, str], names: tuple[str, ...]) -> Iterator[CiValue]:
        if not isinstance(node, ast.Dict):
            value = ast.literal_eval(node)
            items = sorted(value) if isinstance(value, set) else value
            items = items if isinstance(items, (list, tuple)) else [items]
            yield CiValue(text=", ".join(map(str, items)), line=node.lineno, groups=groups)
            return
        for key, item in zip(node.keys, node.values, strict=True):
            text = str(ast.literal_eval(key)) if key is not None else ""
            if text and (names[:1] != ("cuda",) or re.fullmatch(r"\d+\.\d+", text)):  # others are xpu, cpu
                yield from leaves(item, {**groups, **dict.fromkeys(names[:1], text)}, names[1:])

    def read(text: str) -> Sequence[CiValue]:
        try:
            for statement in reversed(ast.parse(text).body):
                if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
                    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                    if any(isinstance(target, ast.Name) and target.id == variable for target in targets):
                        return tuple(leaves(statement.value, {}, keys))
        except _UNREADABLE as error:
            raise NotInFile(f"does not write {variable} down as plain Python ({error})") from error
        raise NotInFile(f"assigns nothing to {variable}")

    return read


_MATRIX = ".github/scripts/generate_binary_build_matrix.py"
_TRITON = ".ci/docker/triton_version.txt"
_REQUIREMENTS = ".ci/docker/requirements-ci.txt"
_NUMBERS = r"(?P<value>\d+(?:\.\d+)+)"
_TOOLS = ("cmake", "ninja", "packaging", "setuptools")

PINS = (
    CiRule("cuda", _MATRIX, literal("CUDA_ARCHES_FULL_VERSION", "cuda")),
    CiRule("triton", _TRITON, lines(rf"^{_NUMBERS}\s*$")),
    CiRule("python", _MATRIX, literal("FULL_PYTHON_VERSIONS")),
    CiRule("eigen", "third_party/eigen_pin.txt", lines(rf"^{_NUMBERS}\s*$")),
    *(CiRule(tool, _REQUIREMENTS, lines(rf"^{tool}=={_NUMBERS}")) for tool in _TOOLS),
)
NAMED = frozenset(rule.name for rule in PINS)

_ARCHS, _ARCHS_FILE = "gpu-architectures", ".ci/manywheel/build_env_setup.py"
#: The GPU architectures that upstream ships. Up to 2.12 a script computed them: those are not read.
ARCH_LISTS = (
    CiRule(_ARCHS, _ARCHS_FILE, literal("TORCH_CUDA_ARCH_LIST_TABLE", "cuda", "machine")),
    CiRule(_ARCHS, _MATRIX, literal("TORCH_CUDA_ARCH_LIST", "cuda", "machine")),
)
