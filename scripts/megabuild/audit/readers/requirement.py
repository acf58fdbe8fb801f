"""Readers of Python requirements: requirements*.txt, and lists in a pyproject.toml."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Parsed
from packaging.utils import canonicalize_name

from megabuild.audit.readers.value import NotFound, Source, Value


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """The constraints on one distribution.

    Parameters
    ----------
    distribution:
        A pattern for its whole name, as in ``nvidia-cudnn(-cu\\d+)?``.
    key:
        Of the list in a TOML file: ``build-system.requires``; empty for a requirements file.
    """

    distribution: re.Pattern[str]
    key: str = ""

    def read(self, source: Source) -> Sequence[Value]:
        """Return one value for each line that names the distribution; its marker is the group ``marker``."""
        entries = _from_table(source.text, self.key) if self.key else _from_lines(source.text)
        values = [value for line, entry in entries for value in requirements(entry, self.distribution, line)]
        if not values:
            place = f" in {self.key}" if self.key else ""
            raise NotFound(f"has no requirement {self.distribution.pattern!r}{place}")
        return values


def requirements(text: str, distribution: re.Pattern[str], line: int | None) -> Iterator[Value]:
    """Yield the value of a requirement, if it is one on a distribution of that name."""
    try:
        parsed = Parsed(text)
    except InvalidRequirement:
        return
    if distribution.fullmatch(canonicalize_name(parsed.name)):
        groups = {"marker": str(parsed.marker)} if parsed.marker else {}
        # as it is written: packaging would sort it
        written = re.sub(r"^[\w.-]+\s*(?:\[[^\]]*\])?", "", text.partition(";")[0].strip())
        yield Value(text=re.sub(r"[\s()]", "", written) or "*", line=line, groups=groups)


def _from_lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        entry = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()
        if entry and not entry.startswith("-"):
            yield number, entry


def _from_table(text: str, key: str) -> Iterator[tuple[int, str]]:
    """Yield the strings of a list in a TOML file. Such a list is one of Python's as well, comments included."""
    table, _, name = key.rpartition(".")
    lines = text.splitlines()
    here = not table
    for index, line in enumerate(lines):
        if header := re.fullmatch(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?", line):
            here = header[1] == table
        elif here and re.match(rf"\s*{re.escape(name)}\s*=\s*\[", line):
            yield from _strings(lines, index, key)
            return
    raise NotFound(f"has no list {key}")


def _strings(lines: Sequence[str], first: int, key: str) -> Iterator[tuple[int, str]]:
    for last in range(first, len(lines)):
        if "]" not in lines[last]:
            continue
        written = "\n".join(lines[first : last + 1]).partition("=")[2].strip()
        try:
            tree = ast.parse(written, mode="eval")
        except SyntaxError:
            continue  # a bracket inside a string or a comment
        if isinstance(tree.body, ast.List):
            for item in tree.body.elts:
                if isinstance(item, ast.Constant) and isinstance(item.value, str):
                    yield first + item.lineno, item.value
            return
    raise NotFound(f"has a list {key} that cannot be read")
