"""What readers get and give: a file of upstream's tree, and the values found in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


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
        Where it stands, counted from 1, or None for a whole file.
    groups:
        What is known of where it holds: ``cuda``, ``python``, ``platform`` and whatever else a pattern names.
    file:
        The file it stands in, if that is not the one that was read.
    """

    text: str
    line: int | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    file: str = ""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file to read.

    Parameters
    ----------
    path:
        In upstream's tree.
    text:
        What is in it.
    given:
        What the rule is asked about: ``{"cuda": "13.0", "machine": "x86_64"}``.
    other:
        Returns the text of another file of the tree, or None.
    """

    path: str
    text: str
    given: Mapping[str, str] = field(default_factory=dict)
    other: Callable[[str], str | None] = lambda _path: None


class Reader(Protocol):
    """A way to find values in a file. Its fields are the options that a rule gives."""

    def read(self, source: Source) -> Sequence[Value]:
        """Return the values.

        Raises
        ------
        NotFound
            There are none.
        """


def filled(template: str, given: Mapping[str, str]) -> str:
    """Return a template like ``CUDA {cuda}`` with its names replaced; unknown ones stay."""
    return re.sub(r"\{(\w+)\}", lambda match: given.get(match[1], match[0]), template)


def cut(pattern: re.Pattern[str] | None, text: str) -> tuple[str, dict[str, str]] | None:
    """Return the group ``value`` of a pattern and its other groups, or the whole text where there is no pattern."""
    if pattern is None:
        return text, {}
    match = pattern.search(text)
    if match is None:
        return None
    groups = {name: found for name, found in match.groupdict().items() if found is not None}
    return groups.pop("value", match[0]), groups
