"""Ways to find values in a file of upstream's tree: lines, Python literals, requirements, YAML and JSON.

Nothing is executed, and nothing followed: what a script computes is not read. Each function takes what a rule says and
returns a reader, which takes a file's text and returns the values in it, or raises NotFound.
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
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

_UNREADABLE = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)


class NotFound(Exception):
    """A file is there, but what a reader looks for is not in it; the message is the middle of a sentence."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """One value as upstream writes it."""

    text: str  #: ``9.20.0.48``, ``==2.29.7``, ``v2.29.7-1``; ``*`` for a requirement that takes any version
    line: int  #: counted from 1
    #: What is known of where it holds: ``cuda``, ``python``, ``machine``, ``marker``, ``torch_version``.
    groups: Mapping[str, str] = field(default_factory=dict)


Reader = Callable[[str], Sequence[Value]]


def lines(
    pattern: str, *, under: str = "", only: str = "", which: slice = slice(None), shown: str = ""
) -> Reader:
    """Read every line that matches a pattern, comments left out.

    Parameters
    ----------
    pattern:
        Its group ``value`` is the value; other groups tell where it holds.
    under:
        The nearest line above that matches this one tells more of where it holds: a case label, a function's name.
    only:
        What the group ``label`` must be as a whole; other lines are left out.
    which:
        Of the lines that match: the first, the last.
    shown:
        Shown in place of the value, where a line says something that is no version; comments count then.
    """

    def read(text: str) -> Sequence[Value]:
        values: list[Value] = []
        heading: dict[str, str] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            if not shown and line.lstrip().startswith("#"):
                continue
            if under and (above := re.search(under, line)):
                heading = _groups(above)
            if found := re.search(pattern, line):
                groups = {**heading, **_groups(found)}
                value = groups.pop("value", found[0])
                if not only or re.fullmatch(only, groups.get("label", "")):
                    values.append(Value(text=shown or value, line=number, groups=groups))
        if not values:
            raise NotFound(f"has no line that fits {pattern!r}")
        return values[which]

    return read


def requirement(distribution: str, *, table: str = "") -> Reader:
    """Read the constraints on one distribution; a marker is the group ``marker``.

    Parameters
    ----------
    distribution:
        A pattern for its whole name, as in ``nvidia-cudnn(-cu\\d+)?``.
    table:
        The TOML table whose strings are requirements; empty for a requirements file.
    """

    def read(text: str) -> Sequence[Value]:
        values: list[Value] = []
        here = not table
        for number, line in enumerate(text.splitlines(), start=1):
            if table and (header := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line)):
                here = header[1] == table
            elif here and not line.lstrip().startswith("#"):
                entries = re.findall(r"""["']([^"']+)["']""", line) if table else [line.partition(" #")[0]]
                values += (value for entry in entries for value in _requirements(entry, distribution, number))
        if not values:
            place = f" in [{table}]" if table else ""
            raise NotFound(f"has no requirement {distribution!r}{place}")
        return values

    return read


def literal(
    variable: str, *keys: str, requirement: str = "", otherwise: str = "", marked: str = "", mark: str = ""
) -> Reader:
    """Read what a Python module assigns to a name at its top level, through ast.

    A dictionary gives a value for each key, a list of pairs one for each pair; a list or a set of plain values is one
    value, with commas between.

    Parameters
    ----------
    keys:
        Names of the groups that keys become, outermost first; ``cuda`` takes versions only.
    requirement:
        The strings are requirements, with ``|`` between them; only those on this distribution count.
    otherwise:
        A name with the value for every other key; the innermost group of ``keys`` is then ``other``.
    marked, mark:
        A name with a set, and what is put behind items that are in it.
    """

    def read(text: str) -> Sequence[Value]:
        chosen = _plain(_assigned(text, marked), marked) if marked else ()
        leaves = list(_leaves(_assigned(text, variable), {}, keys, variable))
        if otherwise:
            leaves.append((_assigned(text, otherwise), dict.fromkeys(keys[-1:], "other")))
        values: list[Value] = []
        for node, groups in leaves:
            found = _plain(node, variable)
            if requirement:
                for entry in map(str.strip, str(found).split("|")):
                    line = _line_of(text, node, entry)
                    for value in _requirements(entry, requirement, line):
                        values.append(Value(text=value.text, line=line, groups={**value.groups, **groups}))
                continue
            items = sorted(found) if isinstance(found, set) else found
            items = items if isinstance(items, (list, tuple)) else [items]
            joined = ", ".join(f"{item}{mark if item in chosen else ''}" for item in items)
            values.append(Value(text=joined, line=node.lineno, groups=groups))
        if not values:
            raise NotFound(f"has nothing that fits {requirement!r} in {variable}")
        return values

    return read


def data(*path: str, beside: str = "") -> Reader:
    """Read entries of a YAML or JSON file.

    Parameters
    ----------
    path:
        Keys on the way to the value; ``*`` goes through all items of a list.
    beside:
        A key of the mapping that holds the value; what it says becomes a group of this name (``-`` turned to ``_``).
    """

    def read(text: str) -> Sequence[Value]:
        try:
            document = YAML(typ="safe", pure=True).compose(text)  # not loaded: 3.10 is no number
        except (YAMLError, RecursionError) as error:
            raise NotFound(f"cannot be read as YAML or JSON ({str(error).splitlines()[0]})") from error
        values = list(_walk(document, path, beside, {}, 0))
        if not values:
            raise NotFound(f"has no {'.'.join(path)}")
        return values if beside else [Value(text=", ".join(one.text for one in values), line=values[0].line)]

    return read


def _walk(
    node: Node | None, path: Sequence[str], beside: str, groups: Mapping[str, str], line: int
) -> Iterator[Value]:
    if not path:
        items = node.value if isinstance(node, SequenceNode) else [node]
        scalars = [str(item.value) for item in items if isinstance(item, ScalarNode)]
        yield Value(text=", ".join(scalars), line=line, groups=groups)
    elif isinstance(node, MappingNode):
        here = {key.value: value for key, value in node.value if key.value == beside}
        known = {name.replace("-", "_"): str(value.value) for name, value in here.items()}
        for key, value in node.value:
            if key.value == path[0]:
                yield from _walk(value, path[1:], beside, {**groups, **known}, key.start_mark.line + 1)
    elif isinstance(node, SequenceNode) and path[0] == "*":
        for item in node.value:
            yield from _walk(item, path[1:], beside, groups, line)


def _groups(match: re.Match[str]) -> dict[str, str]:
    return {name: found for name, found in match.groupdict().items() if found is not None}


def _requirements(text: str, distribution: str, line: int) -> Iterator[Value]:
    """Yield the value of a requirement, if it is one on a distribution of that name."""
    try:
        parsed = Parsed(text)
    except InvalidRequirement:
        return
    if re.fullmatch(distribution, canonicalize_name(parsed.name)):
        groups = {"marker": str(parsed.marker)} if parsed.marker else {}
        # as it is written: packaging would sort it
        written = re.sub(r"^[\w.-]+\s*(?:\[[^\]]*\])?", "", text.partition(";")[0].strip())
        yield Value(text=re.sub(r"[\s()]", "", written) or "*", line=line, groups=groups)


def _assigned(text: str, variable: str) -> ast.expr:
    """Return what a module assigns to a name at its top level, the last time it does."""
    try:
        module = ast.parse(text)
    except _UNREADABLE as error:
        raise NotFound(f"cannot be read as Python ({error})") from error
    for statement in reversed(module.body):
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if any(isinstance(target, ast.Name) and target.id == variable for target in targets):
                return statement.value
    raise NotFound(f"assigns nothing to {variable}")


def _leaves(
    node: ast.expr, groups: dict[str, str], names: tuple[str, ...], variable: str
) -> Iterator[tuple[ast.expr, dict[str, str]]]:
    pairs: list[tuple[Any, ast.expr]] = []
    if isinstance(node, ast.Dict):
        pairs = [(key, item) for key, item in zip(node.keys, node.values, strict=True) if key is not None]
    elif isinstance(node, (ast.List, ast.Tuple)) and names:
        twos = [item.elts for item in node.elts if isinstance(item, ast.Tuple) and len(item.elts) == 2]
        pairs = [(first, second) for first, second in twos] if len(twos) == len(node.elts) else []
    if not pairs:
        yield node, groups
    for key, item in pairs:
        text = str(_plain(key, variable))
        if names[:1] != ("cuda",) or re.fullmatch(r"\d+\.\d+", text):  # others are xpu, cpu
            known = {**groups, **dict.fromkeys(names[:1], text)}
            yield from _leaves(item, known, names[1:], variable)


def _plain(node: ast.expr, variable: str) -> Any:
    try:
        return ast.literal_eval(node)
    except _UNREADABLE as error:
        raise NotFound(f"computes {variable} instead of writing it down (line {node.lineno})") from error


def _line_of(text: str, node: ast.expr, entry: str) -> int:
    """Return the line of a part of a string that is written in several pieces."""
    written = text.splitlines()
    last = node.end_lineno or node.lineno
    return next((n for n in range(node.lineno, last + 1) if entry in written[n - 1]), node.lineno)
