"""Reader of literals in Python files, through ast: nothing is executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from megabuild.audit.readers.requirement import requirements
from megabuild.audit.readers.value import NotFound, Source, Value, cut


@dataclass(frozen=True, kw_only=True)
class PythonLiteral:
    """A literal that a module assigns to a name at its top level.

    A dictionary gives a value for each key, a list of pairs one for each pair; a list or a set of plain values is one
    value, joined with ``join``.

    Parameters
    ----------
    variable:
        The name.
    keys:
        Names of the groups that keys become, outermost first.
    only:
        Patterns that keys must match as a whole, by group name; other entries are left out.
    requirement:
        The strings are requirements, with ``|`` between them; only those on this distribution count.
    pattern:
        The group ``value`` of it is the value, in place of the whole string.
    join:
        Between the items of a list or a set; empty: each item is a value of its own.
    otherwise:
        A name with the value for every other key; the innermost group of ``keys`` is then ``other``.
    marked, mark:
        A name with a set, and what is put behind items that are in it.
    """

    variable: str
    keys: tuple[str, ...] = ()
    only: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    requirement: re.Pattern[str] | None = None
    pattern: re.Pattern[str] | None = None
    join: str = ", "
    otherwise: str = ""
    marked: str = ""
    mark: str = ""

    def read(self, source: Source) -> Sequence[Value]:
        """Return the values in the file's order."""
        node = literal(source.text, self.variable)
        marked = plain(source.text, self.marked) if self.marked else ()
        chosen = set(marked) if isinstance(marked, (set, list, tuple)) else set()
        leaves = list(self._leaves(node, {}, self.keys))
        if self.otherwise:
            leaves.append((literal(source.text, self.otherwise), dict.fromkeys(self.keys[-1:], "other")))
        values = [
            value for item, groups in leaves for value in self._values(source.text, item, groups, chosen)
        ]
        if not values:
            wanted = self.requirement or self.pattern
            fitting = f" that fits {wanted.pattern!r}" if wanted else ""
            raise NotFound(f"has nothing{fitting} in {self.variable}")
        return values

    def _leaves(
        self, node: ast.expr, groups: dict[str, str], names: tuple[str, ...]
    ) -> Iterator[tuple[ast.expr, dict[str, str]]]:
        if isinstance(node, ast.Dict):
            both = zip(node.keys, node.values, strict=True)
            pairs = [(key, item) for key, item in both if key is not None]
        elif isinstance(node, (ast.List, ast.Tuple)) and names and (found := _pairs(node)):
            pairs = found
        elif isinstance(node, (ast.List, ast.Tuple, ast.Set)) and not self.join:
            yield from ((item, groups) for item in node.elts)
            return
        else:
            yield node, groups
            return
        for key, item in pairs:
            text = str(_plain(key, self.variable))
            if names and names[0] in self.only and not self.only[names[0]].fullmatch(text):
                continue
            yield from self._leaves(item, {**groups, **({names[0]: text} if names else {})}, names[1:])

    def _values(
        self, text: str, node: ast.expr, groups: dict[str, str], marked: set[object]
    ) -> Iterator[Value]:
        found = _plain(node, self.variable)
        if isinstance(found, (list, tuple, set)):
            items = sorted(found) if isinstance(found, set) else list(found)
            texts = [f"{item}{self.mark if item in marked else ''}" for item in items]
            yield Value(text=self.join.join(texts), line=node.lineno, groups=groups)
        elif self.requirement is not None:
            for entry in str(found).split("|"):
                for value in requirements(entry.strip(), self.requirement, _line(text, node, entry.strip())):
                    yield Value(text=value.text, line=value.line, groups={**value.groups, **groups})
        elif cutting := cut(self.pattern, str(found)):
            yield Value(text=cutting[0], line=node.lineno, groups={**groups, **cutting[1]})


def literal(text: str, variable: str) -> ast.expr:
    """Return what a module assigns to a name at its top level, the last time it does.

    Raises
    ------
    NotFound
        It is no Python that this interpreter can read, or assigns nothing to that name.
    """
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotFound(f"cannot be read as Python ({error})") from error
    found: ast.expr | None = None
    for statement in module.body:
        if isinstance(statement, ast.Assign):
            names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            names = [statement.target.id]
        else:
            continue
        if variable in names and statement.value is not None:
            found = statement.value
    if found is None:
        raise NotFound(f"assigns nothing to {variable}")
    return found


def plain(text: str, variable: str) -> object:
    """Return the value of a literal: `literal`, evaluated."""
    return _plain(literal(text, variable), variable)


def _plain(node: ast.expr, variable: str) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "set"
            and not node.args
        ):
            return set()
        raise NotFound(f"computes {variable} instead of writing it down (line {node.lineno})") from error


def _pairs(node: ast.List | ast.Tuple) -> list[tuple[ast.expr, ast.expr]]:
    """Return the items of a list of pairs, or nothing if it is another list."""
    items = [
        item.elts for item in node.elts if isinstance(item, (ast.Tuple, ast.List)) and len(item.elts) == 2
    ]
    return [(first, second) for first, second in items] if len(items) == len(node.elts) else []


def _line(text: str, node: ast.expr, entry: str) -> int:
    """Return the line of a part of a string that is written in several pieces."""
    lines = text.splitlines()
    last = node.end_lineno or node.lineno
    return next((n for n in range(node.lineno, last + 1) if entry in lines[n - 1]), node.lineno)
