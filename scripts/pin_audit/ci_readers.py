"""Ways to find values in a file of upstream's tree: lines and Python literals.

Nothing is executed: values that a script computes are not found. Each function takes the parameters of a rule and
returns a reader, which takes a file's text and returns the values in it, or raises NotInFile.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Parsed
from packaging.utils import canonicalize_name

_UNREADABLE = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)


class NotInFile(Exception):
    """A file does not contain the expected values; the message is the end of a sentence."""


@dataclass(frozen=True, kw_only=True)
class CiValue:
    """One value as upstream writes it."""

    text: str  #: ``9.20.0.48``, ``==2.29.7``, ``v2.29.7-1``; ``*`` for a requirement that takes any version
    line: int  #: counted from 1
    #: Conditions: ``cuda``, ``python``, ``machine``, ``marker``, ``torch_version``.
    groups: Mapping[str, str] = field(default_factory=dict)


Reader = Callable[[str], Sequence[CiValue]]


def lines(pattern: str, *, under: str = "", shown: str = "") -> Reader:
    """Read every line that matches a pattern, comments left out: its group ``value``, without quotes.

    Other groups are conditions of the value; so are those of the nearest line above that matches `under`. `shown`
    replaces the value where a line does not contain a version; comments count then.
    """

    def read(text: str) -> Sequence[CiValue]:
        values: list[CiValue] = []
        heading: dict[str, str] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            if not shown and line.lstrip().startswith("#"):
                continue
            if under and (above := re.search(under, line)):
                heading = _groups(above)
            if found := re.search(pattern, line):
                groups = {**heading, **_groups(found)}
                value = re.sub(r"[\"']", "", groups.pop("value", found[0]))
                values.append(CiValue(text=shown or value, line=number, groups=groups))
        if not values:
            raise NotInFile(f"has no line that fits {pattern!r}")
        return values

    return read


def literal(variable: str, *keys: str, requirement: str = "", ptx: str = "", unless: str = "") -> Reader:
    """Read what a Python module assigns to a name at its top level, through ast.

    A dictionary gives a value for each key; `keys` are the names of the groups that keys become, outermost first, of
    which ``cuda`` takes versions only. A list or a set of plain values is one value, with commas between. With
    `requirement`, strings are requirements with ``|`` between them, and only those on a distribution count whose whole
    name fits the pattern; a marker is the group ``marker``. `ptx` names a set of items that get ``+PTX``, but in a file
    that matches `unless`.
    """

    def read(text: str) -> Sequence[CiValue]:
        with_ptx = _plain(_assigned(text, ptx), ptx) if ptx and not re.search(unless or "(?!)", text) else ()
        values: list[CiValue] = []
        for node, groups in _leaves(_assigned(text, variable), {}, keys, variable):
            found = _plain(node, variable)
            if requirement:
                for entry in map(str.strip, str(found).split("|")):
                    line = _line_of(text, node, entry)
                    values += _requirements(entry, requirement, line, groups)
                continue
            items = sorted(found) if isinstance(found, set) else found
            items = items if isinstance(items, (list, tuple)) else [items]
            joined = ", ".join(f"{item}{'+PTX' if item in with_ptx else ''}" for item in items)
            values.append(CiValue(text=joined, line=node.lineno, groups=groups))
        if not values:
            raise NotInFile(f"has nothing that fits {requirement!r} in {variable}")
        return values

    return read


def _groups(match: re.Match[str]) -> dict[str, str]:
    return {name: found for name, found in match.groupdict().items() if found is not None}


def _requirements(text: str, distribution: str, line: int, groups: Mapping[str, str]) -> Iterator[CiValue]:
    """Yield the value of a requirement, if it is one on a distribution of that name."""
    try:
        parsed = Parsed(text)
    except InvalidRequirement:
        return
    if re.fullmatch(distribution, canonicalize_name(parsed.name)):
        marker = {"marker": str(parsed.marker)} if parsed.marker else {}
        yield CiValue(text=str(parsed.specifier) or "*", line=line, groups={**marker, **groups})


def _assigned(text: str, variable: str) -> ast.expr:
    """Return what a module assigns to a name at its top level, the last time it does."""
    try:
        module = ast.parse(text)
    except _UNREADABLE as error:
        raise NotInFile(f"cannot be read as Python ({error})") from error
    for statement in reversed(module.body):
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if any(isinstance(target, ast.Name) and target.id == variable for target in targets):
                return statement.value
    raise NotInFile(f"assigns nothing to {variable}")


def _leaves(
    node: ast.expr, groups: dict[str, str], names: tuple[str, ...], variable: str
) -> Iterator[tuple[ast.expr, dict[str, str]]]:
    if not isinstance(node, ast.Dict):
        yield node, groups
        return
    for key, item in zip(node.keys, node.values, strict=True):
        if key is None:
            continue
        text = str(_plain(key, variable))
        if names[:1] != ("cuda",) or re.fullmatch(r"\d+\.\d+", text):  # others are xpu, cpu
            known = {**groups, **dict.fromkeys(names[:1], text)}
            yield from _leaves(item, known, names[1:], variable)


def _plain(node: ast.expr, variable: str) -> Any:
    try:
        return ast.literal_eval(node)
    except _UNREADABLE as error:
        raise NotInFile(f"computes {variable} instead of writing it down (line {node.lineno})") from error


def _line_of(text: str, node: ast.expr, entry: str) -> int:
    """Return the line of a part of a string that is written in several pieces."""
    written = text.splitlines()
    last = node.end_lineno or node.lineno
    return next((n for n in range(node.lineno, last + 1) if entry in written[n - 1]), node.lineno)
