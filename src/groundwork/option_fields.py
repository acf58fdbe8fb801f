"""Declares the options and arguments of a command as fields of a dataclass, whose object the command gets.

:mod:`command_line.parameters` makes click's parameters of the fields. The parser, ``--help``, completion and
docs/options.md follow from these. A field's type says which values its option takes: ``str``, ``int``, ``float`` or
``Path``, ``bool`` for a switch, ``bool | None`` for a pair of switches, and a ``tuple`` of these for a repeatable
option. ``None`` is the value of an option that is not given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Model = TypeVar("Model", bound="DataclassInstance")
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
    off: str = ""  #: of a pair of switches, the one that means False
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


@dataclass(frozen=True, kw_only=True)
class OptionField:
    """A field of a model, with its declaration."""

    name: str
    annotation: Any
    declared: Declared

    @property
    def is_switch(self) -> bool:
        """Whether the option takes no value."""
        return self.annotation is bool or bool(self.declared.off)

    @property
    def is_repeatable(self) -> bool:
        """Whether the field holds several values."""
        return get_origin(self.annotation) is tuple

    @property
    def typed(self) -> type:
        """The type of one value as users type it: ``str`` for ``str | None`` and for ``tuple[str, ...]``."""
        if self.declared.typed is not None:
            return self.declared.typed
        for part in get_args(self.annotation):
            if isinstance(part, type) and part is not NoneType:
                return part
        assert isinstance(self.annotation, type)
        return self.annotation


def option_fields(model: type[DataclassInstance]) -> Iterator[OptionField]:
    """Yield the fields that declare options. The type of each other field is a model, whose fields take its place."""
    annotations = get_type_hints(model)
    for of_model in fields(model):
        annotation = annotations[of_model.name]
        if declaration := of_model.metadata.get(_KEY):
            yield OptionField(name=of_model.name, annotation=annotation, declared=declaration)
        else:
            yield from option_fields(annotation)


def fill(model: type[Model], values: Mapping[str, object]) -> Model:
    """Return a model with the values of its options, by name."""
    annotations = get_type_hints(model)
    filled: dict[str, object] = {}
    for of_model in fields(model):
        name = of_model.name
        if _KEY in of_model.metadata:
            filled[name] = values[name]
        else:
            filled[name] = fill(annotations[name], values)
    return model(**filled)


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


def either(group: str, on: str, off: str, *, help: str) -> bool | None:
    """Declare a pair of switches; the value is None if neither is given."""
    declaration = Declared(group=group, flags=(on,), off=off, help=help)
    return field(default=None, metadata={_KEY: declaration})


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
