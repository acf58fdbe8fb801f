"""What is known at one point of a shell script: variables, parameters, functions, and the calls so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tree_sitter import Node

_LONGEST = 100_000  # a text that doubles in a loop ends here


class Leave(Exception):
    """Something that ends more than one statement."""


class Exit(Leave):
    """``exit``."""


class Return(Leave):
    """``return``."""


class Break(Leave):
    """``break``."""


class Continue(Leave):
    """``continue``."""


@dataclass(frozen=True)
class Assigned:
    """What a variable was last set to.

    Parameters
    ----------
    text:
        None where it is unknown.
    line:
        Of the assignment.
    file:
        The file whose text it is, as the script names it; empty for all other values.
    """

    text: str | None
    line: int
    file: str = ""


@dataclass(frozen=True)
class Call:
    """A command that the script would run, or a function of its own that it calls; unknown arguments are None."""

    name: str
    arguments: tuple[str | None, ...]
    line: int


@dataclass
class State:
    """Changes while a script is followed."""

    variables: dict[str, Assigned] = field(default_factory=dict)
    arguments: list[str | None] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    functions: dict[str, Node] = field(default_factory=dict)
    #: of the ``exit`` that ended the script, or None
    status: str | None = None
    #: what may or may not have ended the loop or function that is being followed: nothing in it is sure any more
    doubts: set[type[Leave]] = field(default_factory=set)

    def assign(self, name: str, text: str | None, line: int, file: str = "") -> None:
        """Set a variable."""
        if self.doubts:
            text = None
        if text is not None and len(text) > _LONGEST:
            text = None
        before = self.variables.get(name)
        if before is not None and before.line and before.text is not None and before.text == text:
            return  # exported or copied onto itself: the line that chose the value stays the one to look at
        self.variables[name] = Assigned(text, line, file)

    def value(self, name: str) -> str | None:
        """Return a variable's or a parameter's value: empty if it is unset, None if it is unknown."""
        if name.isdigit():
            index = int(name)
            return self.arguments[index - 1] if 1 <= index <= len(self.arguments) else ""
        if name == "#":
            return str(len(self.arguments))
        if name in ("@", "*"):
            return None if None in self.arguments else " ".join(str(word) for word in self.arguments)
        if not name.isidentifier():
            return None
        assigned = self.variables.get(name)
        return "" if assigned is None else assigned.text

    @contextmanager
    def until(self, *ends: type[Leave]) -> Iterator[None]:
        """Follow a loop or a function: what ends it ends here, and so do doubts whether it was ended."""
        before = set(self.doubts)
        try:
            yield
        except ends:
            pass
        finally:
            self.doubts -= set(ends) - before

    @contextmanager
    def aside(self, *, calls: bool) -> Iterator[None]:
        """Take back afterwards what happens inside; calls stay noted, if that is wanted."""
        variables, arguments, made, status = (
            dict(self.variables),
            list(self.arguments),
            list(self.calls),
            self.status,
        )
        try:
            yield
        finally:
            self.variables, self.arguments, self.status = variables, arguments, status
            if not calls:
                self.calls = made
