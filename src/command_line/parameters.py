"""Makes click's commands of functions that take one object, and click's parameters of that object's fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from command_line.options import GroupedCommand, GroupedOption
from groundwork.option_fields import Declared, Model, OptionField, PathRule, fill, option_fields
from groundwork.result import Result

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

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


def parameters(model: type[DataclassInstance]) -> list[click.Parameter]:
    """Return click's parameters for the fields of a model, with the options of a group together."""
    groups: dict[str, list[click.Parameter]] = {}
    for field in option_fields(model):
        groups.setdefault(field.declared.group, []).append(_parameter(field))
    return list(chain.from_iterable(groups.values()))


def _parameter(field: OptionField) -> click.Parameter:
    declared = field.declared
    attributes: dict[str, Any] = {"metavar": declared.metavar, "required": declared.required}
    if declared.complete:
        attributes["shell_complete"] = declared.complete
    if declared.convert:
        attributes["callback"] = _callback(declared.convert)
    if declared.default is not None:
        attributes["default"] = declared.default
    if field.is_switch:
        attributes["is_flag"] = True
    else:
        attributes["type"] = _value_type(field.typed, declared)
    if not declared.flags:
        if field.is_repeatable:
            attributes["nargs"] = -1
        return click.Argument([field.name], **attributes)
    flags = list(declared.flags)
    if declared.off:
        flags = [f"{flags[0]}/{declared.off}"]  # as click declares a pair
        attributes["default"] = None  # else click's default is the second one
    return GroupedOption(
        [*flags, field.name], group=declared.group, help=declared.help, multiple=field.is_repeatable,
        show_default=declared.show_default, **attributes,
    )  # fmt: skip


def _callback(convert: Callable[[Any], object]) -> Callable[[click.Context, click.Parameter, Any], object]:
    def call(_context: click.Context, _parameter: click.Parameter, value: Any) -> object:
        if value is None:
            return None
        return convert(value)

    return call


def _value_type(typed: type, declared: Declared) -> click.ParamType[Any] | type:
    if declared.choices:
        return click.Choice(declared.choices)
    if typed is Path:
        return click.Path(path_type=Path, **_PATHS[declared.path_rule])
    if declared.at_least is None:
        return typed
    if typed is int:
        return click.IntRange(min=declared.at_least)
    return click.FloatRange(min=declared.at_least)
