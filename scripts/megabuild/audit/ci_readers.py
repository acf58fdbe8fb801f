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
from ruamel.yaml.constructor import RoundTripConstructor
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import ScalarNode


class NotFound(Exception):
    """A file is there, but what a reader looks for is not in it; the message is the middle of a sentence."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """One value as upstream writes it.

    Parameters
    ----------
    text:
        ``9.20.0.48``, ``==2.29.7``, ``v2.29.7-1``; ``*`` for a requirement that takes any version.
    line:
        Where it stands, counted from 1.
    groups:
        What is known of where it holds: ``cuda``, ``python``, ``machine``, ``marker``, ``torch_version``.
    """

    text: str
    line: int | None = None
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


def submodule(path: str) -> Reader:
    """Check that a submodule is still in .gitmodules; its value comes from the audit's source of submodules."""

    def read(text: str) -> Sequence[Value]:
        if not re.search(rf"^\s*path\s*=\s*{re.escape(path)}\s*$", text, re.MULTILINE):
            raise NotFound(f"has no submodule {path}")
        return ()

    return read


def requirement(distribution: str, *, table: str = "") -> Reader:
    """Read the constraints on one distribution; a marker is the group ``marker``.

    Parameters
    ----------
    distribution:
        A pattern for its whole name, as in ``nvidia-cudnn(-cu\\d+)?``.
    table:
        The TOML table whose list ``requires`` it is in; empty for a requirements file.
    """

    def read(text: str) -> Sequence[Value]:
        entries = _required(text, table) if table else _listed(text)
        values = [value for line, entry in entries for value in _requirements(entry, distribution, line)]
        if not values:
            raise NotFound(
                f"has no requirement {distribution!r}" + (f" in {table}.requires" if table else "")
            )
        return values

    return read


def literal(
    variable: str, *keys: str, requirement: str = "", pattern: str = "", join: str = ", ", otherwise: str = "",
    marked: str = "", mark: str = "",
) -> Reader:  # fmt: skip
    """Read what a Python module assigns to a name at its top level, through ast.

    A dictionary gives a value for each key, a list of pairs one for each pair; a list or a set of plain values is one
    value, joined with ``join``.

    Parameters
    ----------
    keys:
        Names of the groups that keys become, outermost first; ``cuda`` takes versions only.
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

    def read(text: str) -> Sequence[Value]:
        chosen = _plain(_assigned(text, marked), marked) if marked else ()
        leaves = list(_leaves(_assigned(text, variable), {}, keys, variable, split=not join))
        if otherwise:
            leaves.append((_assigned(text, otherwise), dict.fromkeys(keys[-1:], "other")))
        values: list[Value] = []
        for node, groups in leaves:
            found = _plain(node, variable)
            if isinstance(found, (list, tuple, set)):
                items = sorted(found) if isinstance(found, set) else found
                joined = join.join(f"{item}{mark if item in chosen else ''}" for item in items)
                values.append(Value(text=joined, line=node.lineno, groups=groups))
            elif requirement:
                for entry in map(str.strip, str(found).split("|")):
                    line = _line_of(text, node, entry)
                    values += [
                        Value(text=value.text, line=line, groups={**value.groups, **groups})
                        for value in _requirements(entry, requirement, line)
                    ]
            elif match := re.search(pattern or r"(?P<value>.*)", str(found)):
                values.append(Value(text=match["value"], line=node.lineno, groups=groups))
        if not values:
            wanted = f" that fits {requirement or pattern!r}" if requirement or pattern else ""
            raise NotFound(f"has nothing{wanted} in {variable}")
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
            yaml = YAML(typ="rt")
            yaml.Constructor = _AllText
            document: Any = yaml.load(text)
        except YAMLError as error:
            raise NotFound(f"cannot be read as YAML or JSON ({str(error).splitlines()[0]})") from error
        values = list(_walk(document, path, beside, {}, None))
        if not values:
            raise NotFound(f"has no {'.'.join(path)}")
        return values if beside else [Value(text=", ".join(one.text for one in values), line=values[0].line)]

    return read


class _AllText(RoundTripConstructor):
    """Leaves scalars as they are written: 3.10 is no number."""

    def as_written(self, node: ScalarNode) -> str:
        """Return a scalar's text."""
        return str(node.value)


for _tag in ("bool", "float", "int", "null", "timestamp"):
    _AllText.add_constructor(f"tag:yaml.org,2002:{_tag}", _AllText.as_written)


def _walk(
    node: Any, path: Sequence[str], beside: str, groups: dict[str, str], line: int | None
) -> Iterator[Value]:
    if not path:
        scalars = [
            str(item) for item in (node if isinstance(node, list) else [node]) if not isinstance(item, dict)
        ]
        yield Value(text=", ".join(scalars), line=line, groups=groups)
    elif isinstance(node, dict) and path[0] in node:
        here = {beside.replace("-", "_"): str(node[beside])} if beside in node else {}
        at = int(node.lc.data[path[0]][0]) + 1 if hasattr(node, "lc") else line  # ruamel.yaml counts from 0
        yield from _walk(node[path[0]], path[1:], beside, {**groups, **here}, at)
    elif isinstance(node, list) and path[0] == "*":
        for item in node:
            yield from _walk(item, path[1:], beside, groups, line)


def _groups(match: re.Match[str]) -> dict[str, str]:
    return {name: found for name, found in match.groupdict().items() if found is not None}


def _requirements(text: str, distribution: str, line: int | None) -> Iterator[Value]:
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


def _listed(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        entry = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()
        if entry and not entry.startswith("-"):
            yield number, entry


def _required(text: str, table: str) -> Iterator[tuple[int, str]]:
    """Yield the strings of a TOML table's list ``requires``, with their lines, which tomllib does not tell."""
    here = inside = False
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.fullmatch(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?", line):
            here = header[1] == table
        inside = inside or (here and re.match(r"\s*requires\s*=\s*\[", line) is not None)
        if inside:
            yield from ((number, one or other) for one, other in re.findall(r'"([^"]*)"|\'([^\']*)\'', line))
            bare = re.sub(r'"[^"]*"|\'[^\']*\'', "", line).partition("#")[0]
            inside = "]" not in bare


def _assigned(text: str, variable: str) -> ast.expr:
    """Return what a module assigns to a name at its top level, the last time it does."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotFound(f"cannot be read as Python ({error})") from error
    found: ast.expr | None = None
    for statement in module.body:
        targets = (
            statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        )
        if any(isinstance(target, ast.Name) and target.id == variable for target in targets):
            found = getattr(statement, "value", None) or found
    if found is None:
        raise NotFound(f"assigns nothing to {variable}")
    return found


def _leaves(
    node: ast.expr, groups: dict[str, str], names: tuple[str, ...], variable: str, *, split: bool
) -> Iterator[tuple[ast.expr, dict[str, str]]]:
    pairs: list[tuple[Any, ast.expr]] = []
    if isinstance(node, ast.Dict):
        pairs = [(key, item) for key, item in zip(node.keys, node.values, strict=True) if key is not None]
    elif isinstance(node, (ast.List, ast.Tuple, ast.Set)) and split:
        yield from ((item, groups) for item in node.elts)
        return
    elif isinstance(node, (ast.List, ast.Tuple)) and names:
        twos = [item.elts for item in node.elts if isinstance(item, ast.Tuple) and len(item.elts) == 2]
        pairs = [(first, second) for first, second in twos] if len(twos) == len(node.elts) else []
    if not pairs:
        yield node, groups
    for key, item in pairs:
        text = str(_plain(key, variable))
        if names[:1] == ("cuda",) and not re.fullmatch(r"\d+\.\d+", text):
            continue  # xpu, cpu
        yield from _leaves(
            item, {**groups, **({names[0]: text} if names else {})}, names[1:], variable, split=split
        )


def _plain(node: ast.expr, variable: str) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise NotFound(f"computes {variable} instead of writing it down (line {node.lineno})") from error


def _line_of(text: str, node: ast.expr, entry: str) -> int:
    """Return the line of a part of a string that is written in several pieces."""
    written = text.splitlines()
    last = node.end_lineno or node.lineno
    return next((n for n in range(node.lineno, last + 1) if entry in written[n - 1]), node.lineno)
