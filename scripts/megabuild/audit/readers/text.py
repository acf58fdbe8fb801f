"""Readers of plain text: a whole file, and lines that match a pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from megabuild.audit.readers.value import NotFound, Source, Value, cut


@dataclass(frozen=True, kw_only=True)
class WholeFile:
    """A file that holds nothing but a version or a commit.

    Parameters
    ----------
    pattern:
        What the file must be; its group ``value`` is the value.
    """

    pattern: re.Pattern[str] = re.compile(r"^(?P<value>\S+)\s*$")

    def read(self, source: Source) -> Sequence[Value]:
        """Return one value, on line 1."""
        found = cut(self.pattern, source.text.strip())
        if found is None:
            raise NotFound(f"is not one word that fits {self.pattern.pattern!r}")
        return (Value(text=found[0], line=1, groups=found[1]),)


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Every line that matches a pattern, comments left out.

    Parameters
    ----------
    pattern:
        Its group ``value`` is the value; other groups tell where it holds.
    under:
        The nearest line above that matches this one tells more of where it holds: a case label, a condition.
    only:
        Patterns that groups must match as a whole, by name; other lines are left out.
    comment:
        How a line starts that does not count.
    shown:
        Shown in place of the value, where a line says something that is no version.
    first:
        Only the first such line counts.
    """

    pattern: re.Pattern[str]
    under: re.Pattern[str] | None = None
    only: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    comment: str = "#"
    shown: str = ""
    first: bool = False

    def read(self, source: Source) -> Sequence[Value]:
        """Return the values in the file's order."""
        values: list[Value] = []
        heading: dict[str, str] = {}
        for number, line in enumerate(source.text.splitlines(), start=1):
            if self.comment and line.lstrip().startswith(self.comment):
                continue
            if self.under is not None and (above := self.under.search(line)):
                heading = {name: text for name, text in above.groupdict().items() if text is not None}
            if found := cut(self.pattern, line):
                groups = {**heading, **found[1]}
                if all(pattern.fullmatch(groups.get(name, "")) for name, pattern in self.only.items()):
                    values.append(Value(text=self.shown or found[0], line=number, groups=groups))
        if not values:
            raise NotFound(f"has no line that fits {self.pattern.pattern!r}")
        return values[:1] if self.first else values
