"""Reader of YAML and JSON files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ruamel.yaml import YAML
from ruamel.yaml.constructor import RoundTripConstructor
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import ScalarNode

from megabuild.audit.readers.value import NotFound, Source, Value, cut


class _AllText(RoundTripConstructor):
    """Leaves scalars as they are written: 3.10 is no number."""

    def as_written(self, node: ScalarNode) -> str:
        """Return a scalar's text."""
        return str(node.value)


for _tag in ("bool", "float", "int", "null", "timestamp"):
    _AllText.add_constructor(f"tag:yaml.org,2002:{_tag}", _AllText.as_written)


@dataclass(frozen=True, kw_only=True)
class Data:
    """Entries of a YAML or JSON file.

    Parameters
    ----------
    path:
        Keys on the way to the value; ``*`` goes through all items of a list or a mapping.
    beside:
        Keys of the mapping that holds the value; what they say becomes groups of these names (``-`` turned to ``_``).
    pattern:
        Of an item's text; its group ``value`` is the value.
    join:
        Between the items of a list, and between all values where ``beside`` names nothing that tells them apart; empty:
        each item is a value of its own.
    """

    path: tuple[str, ...]
    beside: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    join: str = ", "

    def read(self, source: Source) -> Sequence[Value]:
        """Return the values in the file's order."""
        try:
            yaml = YAML(typ="rt")
            yaml.Constructor = _AllText
            data: object = yaml.load(source.text)
        except YAMLError as error:
            raise NotFound(f"cannot be read as YAML or JSON ({str(error).splitlines()[0]})") from error
        values = list(self._walk(data, self.path, {}, None))
        if not values:
            raise NotFound(f"has no {'.'.join(self.path)}")
        if self.join and not self.beside:
            return (Value(text=self.join.join(value.text for value in values), line=values[0].line),)
        return values

    def _walk(
        self, node: object, path: Sequence[str], groups: dict[str, str], line: int | None
    ) -> Iterator[Value]:
        if not path:
            yield from self._values(node, groups, line)
        elif isinstance(node, dict):
            for key in list(node) if path[0] == "*" else [path[0]]:
                if key in node:
                    here = {n.replace("-", "_"): str(node[n]) for n in self.beside if n in node}
                    yield from self._walk(node[key], path[1:], {**groups, **here}, _line(node, key, line))
        elif isinstance(node, list) and path[0] == "*":
            for index, item in enumerate(node):
                yield from self._walk(item, path[1:], groups, _line(node, index, line))

    def _values(self, node: object, groups: dict[str, str], line: int | None) -> Iterator[Value]:
        items = node if isinstance(node, list) else [node]
        scalars = [str(item) for item in items if not isinstance(item, (list, dict))]
        cuttings = [cutting for text in scalars if (cutting := cut(self.pattern, text))]
        if cuttings and self.join:
            yield Value(text=self.join.join(text for text, _ in cuttings), line=line, groups=groups)
        else:
            yield from (Value(text=text, line=line, groups={**groups, **more}) for text, more in cuttings)


def _line(node: object, key: object, otherwise: int | None) -> int | None:
    """Return the line of an entry; ruamel.yaml counts from 0."""
    try:
        position = node.lc.data[key]  # type: ignore[attr-defined]
    except (AttributeError, KeyError, TypeError):
        return otherwise
    return int(position[0]) + 1
