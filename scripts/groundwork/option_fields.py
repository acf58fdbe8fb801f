"""Declares the options and arguments of a command as fields of a dataclass, whose object the command gets.

:mod:`command_line.options` makes click's parameters of the fields. The parser, ``--help``, completion and
docs/options.md follow from these. A field's type says which values its option takes: ``str``, ``int``, ``float`` or
``Path``, ``bool`` for a switch, and a ``tuple`` of these for a repeatable option. ``None`` is the value of an option
that is not given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, field
from enum import Enum
from typing import Any, cast

_KEY = "declared"


class PathRule(Enum):
    """The paths that an option accepts."""

    ANY = "any"
    EXISTING = "existing"
    EXISTING_FILE = "existing file"
    EXISTING_FOLDER = "existing folder"
    NEW_OR_FOLDER = "new or folder"


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The declaration of one option, or of an argument."""

    flags: Sequence[str] = ()  #: ``--jobs``, ``-j``; empty for an argument
    group: str = ""  #: title of its section in the help text
    help: str = ""  #: effect, unit and default
    metavar: str | None = None  #: stands for the value in the help text; None for click's word
    required: bool = False
    default: object = None  #: as users would type it
    show_default: bool = False  #: at the end of the help text
    choices: Sequence[str] = ()  #: the words that are allowed; empty for any
    at_least: int | None = None  #: the smallest number
    path_rule: PathRule = PathRule.ANY
    typed: type | None = None  #: type of the value that ``convert`` takes, if it is not the field's
    convert: Callable[[Any], object] | None = None  #: makes the field's value; raises MegabuildError
    complete: Callable[..., Any] | None = None  #: click's ``shell_complete``


def declared(of: Field[Any]) -> Declared | None:
    """Return a field's declaration; None for a field without one."""
    return cast("Declared | None", of.metadata.get(_KEY))


def option(
    group: str, *flags: str, help: str, default: object = None, default_word: str | None = None, **more: Any
) -> Any:
    """Declare an option with a value; ``more`` are fields of :class:`Declared`.

    ``default_word`` is the word that users type for the default, if the default is no such word.
    """
    typed_default = default_word or default
    declaration = Declared(group=group, flags=flags, help=help, default=typed_default, **more)
    return field(default=default, metadata={_KEY: declaration})


def switch(group: str, *flags: str, help: str) -> bool:
    """Declare an option without a value, which is off by default."""
    declaration = Declared(group=group, flags=flags, help=help)
    return field(default=False, metadata={_KEY: declaration})


def repeatable(group: str, *flags: str, help: str, **more: Any) -> tuple[str, ...]:
    """Declare an option that may be given several times; ``more`` are fields of :class:`Declared`."""
    declaration = Declared(group=group, flags=flags, help=help, **more)
    return field(default=(), metadata={_KEY: declaration})


def argument(metavar: str | None = None, *, required: bool = True, **more: Any) -> Any:
    """Declare a value that is given without a flag; ``more`` are fields of :class:`Declared`.

    An argument that is not required is a tuple, which is then empty.
    """
    metadata = {_KEY: Declared(metavar=metavar, required=required, **more)}
    if required:
        return field(metadata=metadata)
    return field(default=(), metadata=metadata)
