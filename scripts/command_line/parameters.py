"""Makes click's commands of functions that take one object, and click's parameters of that object's fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import click

from command_line.options import GroupedCommand, GroupedOption
from groundwork.option_fields import Declared, PathRule, declared
from groundwork.result import Result

Model = TypeVar("Model")

#: Arguments of ``click.Path``.
_PATHS: Mapping[PathRule, Mapping[str, bool]] = {
    PathRule.ANY: {},
    PathRule.EXISTING: {"exists": True},
    PathRule.EXISTING_FILE: {"exists": True, "dir_okay": False},
    PathRule.EXISTING_FOLDER: {"exists": True, "file_okay": False},
    PathRule.NEW_OR_FOLDER: {"file_okay": False},
}


def command(
    model: type[Model], *, name: str | None = None, examples: str = ""
) -> Callable[[Callable[[Model], Result]], click.Command]:
    """Make a command of a function that takes one ``model``, a dataclass that :mod:`groundwork.option_fields` declares.

    ``name``: as users type it; None for the function's name.
    """

    def decorate(function: Callable[[Model], Result]) -> click.Command:
        @wraps(function)
        def call(**values: object) -> Result:
            return function(fill(model, values))

        decorator = click.command(name, cls=GroupedCommand, params=parameters(model), examples=examples)
        return decorator(call)

    return decorate


def parameters(model: type) -> list[click.Parameter]:
    """Return click's parameters for the fields of a model and of its parts, with the options of a group together."""
    found = list(_parameters(model))
    groups = [getattr(parameter, "group", "") for parameter in found]
    return sorted(found, key=lambda parameter: groups.index(getattr(parameter, "group", "")))


def _parameters(model: type) -> Iterator[click.Parameter]:
    hints = get_type_hints(model)
    for field in fields(model):
        hint = hints[field.name]
        declaration = declared(field)
        if declaration is None:
            yield from _parameters(hint)
        else:
            yield parameter_of(field.name, hint, declaration)


def fill(model: type[Model], values: Mapping[str, object]) -> Model:
    """Return a model with the values of click's parameters. A field that declares no option is a part of its own."""
    hints = get_type_hints(model)
    filled: dict[str, object] = {}
    for field in fields(model):  # type: ignore[arg-type]
        if declared(field) is None:
            filled[field.name] = fill(hints[field.name], values)
        else:
            filled[field.name] = values[field.name]
    return model(**filled)


def parameter_of(name: str, hint: Any, declaration: Declared) -> click.Parameter:
    """Return click's parameter for one field, whose type is ``hint``."""
    is_repeatable = get_origin(hint) is tuple
    attributes: dict[str, Any] = {"metavar": declaration.metavar, "required": declaration.required}
    if declaration.complete:
        attributes["shell_complete"] = declaration.complete
    if declaration.convert:
        attributes["callback"] = _callback(declaration.convert)
    if declaration.default is not None:
        attributes["default"] = declaration.default
    if hint is bool:
        attributes["is_flag"] = True
    else:
        attributes["type"] = _value_type(declaration.typed or _single(hint), declaration)
    if not declaration.flags:
        if is_repeatable:
            attributes["nargs"] = -1
        return click.Argument([name], **attributes)
    return GroupedOption(
        [*declaration.flags, name], group=declaration.group, help=declaration.help, multiple=is_repeatable,
        show_default=declaration.show_default, **attributes,
    )  # fmt: skip


def _callback(convert: Callable[[Any], object]) -> Callable[[click.Context, click.Parameter, Any], object]:
    def call(_context: click.Context, _parameter: click.Parameter, value: Any) -> object:
        if value is None:
            return None
        return convert(value)

    return call


def _single(hint: Any) -> type:
    """Return the type of one value: ``str`` for ``str | None``, and for ``tuple[str, ...]``."""
    for part in get_args(hint):
        if isinstance(part, type) and part is not type(None):
            return part
    assert isinstance(hint, type)
    return hint


def _value_type(kind: type, declaration: Declared) -> click.ParamType[Any] | type:
    if declaration.choices:
        return click.Choice(declaration.choices)
    if kind is Path:
        return click.Path(path_type=Path, **_PATHS[declaration.path_rule])
    if declaration.at_least is None:
        return kind
    if kind is int:
        return click.IntRange(min=declaration.at_least)
    return click.FloatRange(min=declaration.at_least)
