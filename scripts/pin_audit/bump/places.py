"""Scalars of YAML files with their lines, and the edit that puts another value there without touching anything else.

ruamel.yaml says where a scalar stands. Writing a document out again would lay out some lists and comments anew; so only
the scalar's own text is replaced, comments keep their column, and the file is read once more afterwards.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError

from groundwork import files
from groundwork.errors import AuditError
from megabuild.configs.matrix import PLATFORMS, PROVIDERS
from pin_audit.bump.changes import Edit

_SELECTOR = re.compile(r"\s#[^\[\]]*\[([^\[\]]+)\]\s*$")
_SCALAR = re.compile(r""""(?:[^"\\]|\\.)*"|'[^']*'|[^#\n]*?(?=\s+#|\s*$)""")
_KEY = re.compile(r"\$?\{\{\s*(\w+)\s*\}\}")

#: A platform, and the provider of environments; a line of the matrix counts for some of them.
Space = tuple[str, str]
SPACES: tuple[Space, ...] = tuple((platform, provider) for platform in PLATFORMS for provider in PROVIDERS)


@dataclass(frozen=True)
class Scalar:
    """A value in a file, or in none."""

    value: str
    line: int  #: counted from 1
    column: int  #: counted from 0

    @property
    def key(self) -> str:
        """The name that the value is an expression of, or an empty string."""
        found = _KEY.fullmatch(self.value.strip())
        return found[1] if found else ""


class YamlFile:
    """A file of a repository, as text and as ruamel.yaml reads it."""

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        try:
            # links are not followed: in a foreign repository they may lead anywhere
            with files.open_regular(root / name, below=root) as file:
                self.text = file.read().decode("utf-8")  # with the ends of its lines
        except (OSError, UnicodeError) as error:
            raise AuditError(f"cannot read {root / name}: {error}", "correct the file") from error
        self.lines = [line.rstrip("\r\n") for line in self.text.splitlines(keepends=True)]

    @cached_property
    def document(self) -> Any:
        """The file's content; raises AuditError if it is no mapping."""
        found = parsed(self.text, self.name)
        if not isinstance(found, CommentedMap):
            raise AuditError(f"{self.name} is not a mapping", "correct the file")
        return found

    def replaced(self, place: Scalar, value: str) -> Edit:
        """Return the edit that puts another value in a scalar's place, in its quotes; a comment stays in its column."""
        line = self.lines[place.line - 1]
        written = place.value
        if not line.startswith(written, place.column):  # in quotes, or as YAML reads it: True is true
            found = _SCALAR.match(line, place.column)
            written = found[0] if found else ""
        quote = written[:1] if written[:1] in ("'", '"') else ""
        new, rest = f"{quote}{value}{quote}", line[place.column + len(written) :]
        comment = rest.lstrip()
        if comment.startswith("#"):
            gap = len(rest) - len(comment) + len(written) - len(new)
            rest = " " * max(gap, 2) + comment
        return Edit(self.name, place.line, line, (f"{line[: place.column]}{new}{rest}",))


class VariantFile(YamlFile):
    """A conda_build_config.yaml: the values of every key, each with its line and selector."""

    def values(self, key: str, space: Space | None = None) -> list[Scalar]:
        """Return the values of a key, those that count for one platform and provider or all."""
        return [one for one in self._all(key) if space is None or self.counts(one, space)]

    def counts(self, value: Scalar, space: Space) -> bool:
        """Whether a line's selector holds; one that cannot be read does."""
        return _holds(self.selector(value), space)

    def selector(self, value: Scalar) -> str:
        """Return a line's selector without its brackets, or an empty string."""
        found = _SELECTOR.search(self.lines[value.line - 1])
        return found[1].strip() if found else ""

    def zipped(self, key: str, space: Space) -> list[str]:
        """Return the keys that are zipped with a key, itself among them."""
        for group in self.document.get("zip_keys") or []:
            if isinstance(group, CommentedSeq):
                keys = [
                    _text(one)
                    for index, one in enumerate(group)
                    if _holds(self.selector(_scalar(group, index)), space)
                ]
                if key in keys:
                    return keys
        return [key]

    def without(self, value: Scalar, provider: str) -> Edit:
        """Return the edit that leaves a line to the other providers; where it counts for no other one, it goes."""
        line = self.lines[value.line - 1]
        others = {space[1] for space in SPACES if self.counts(value, space)} - {provider}
        if not others:
            return Edit(self.name, value.line, line, ())
        known = self.selector(value)
        if len(others) == 1:
            words = f'provider == "{others.pop()}"'
            known = "" if re.fullmatch(r'provider != "[\w-]+"', known) else known
        else:
            words = f'provider != "{provider}"'
        known = f"({known})" if " or " in known else known
        words = " and ".join(filter(None, (known, words)))
        head = _SELECTOR.sub("", line).rstrip()
        column = self._column(value)
        return Edit(self.name, value.line, line, (f"{head.ljust(column - 1)} # [{words}]",))

    def _all(self, key: str) -> list[Scalar]:
        node = self.document.get(key)
        if isinstance(node, CommentedSeq):
            return [_scalar(node, index) for index in range(len(node))]
        return []

    def _column(self, value: Scalar) -> int:
        """Return where comments of the lines around begin."""
        for number in sorted(range(len(self.lines)), key=lambda one: abs(one + 1 - value.line)):
            if found := _SELECTOR.search(self.lines[number]):
                return found.start() + 1
        return len(self.lines[value.line - 1]) + 2


def parsed(text: str, name: str) -> Any:
    """Return YAML as ruamel.yaml keeps it; raises AuditError."""
    try:
        return YAML(typ="rt", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError) as error:
        raise AuditError(f"cannot read {name}: {error}", "correct the file") from error


def value_of(node: Any, key: str) -> Scalar | None:
    """Return a mapping's scalar of some key, or None."""
    if not isinstance(node, CommentedMap) or isinstance(node.get(key), (dict, list, type(None))):
        return None
    line, column = node.lc.value(key)
    return Scalar(_text(node[key]), line + 1, column)


def _scalar(node: CommentedSeq, index: int) -> Scalar:
    line, column = node.lc.item(index)
    return Scalar(_text(node[index]), line + 1, column)


def _holds(selector: str, space: Space) -> bool:
    if not selector:
        return True
    platform, provider = space
    system, _, machine = platform.partition("-")
    names: dict[str, object] = {
        **{name: name == system for name in ("linux", "osx", "win")},
        "unix": system != "win",
        **{name: name == {"64": "x86_64"}.get(machine, machine) for name in ("x86_64", "aarch64", "arm64")},
        "provider": provider,
        "target_platform": platform,
    }
    try:
        return bool(_evaluated(ast.parse(selector, mode="eval").body, names))
    except (SyntaxError, ValueError, KeyError, RecursionError):
        return True


def _evaluated(node: ast.expr, names: dict[str, object]) -> object:
    """Evaluate what selectors consist of: names, texts, comparisons, and, or, not."""
    if isinstance(node, ast.BoolOp):
        values = [bool(_evaluated(one, names)) for one in node.values]
        return all(values) if isinstance(node.op, ast.And) else any(values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _evaluated(node.operand, names)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = _evaluated(node.left, names), _evaluated(node.comparators[0], names)
        if isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            return (left == right) == isinstance(node.ops[0], ast.Eq)
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.Constant):
        return node.value
    raise ValueError("not a selector")


def _text(value: object) -> str:
    """Return a value as the engine spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
