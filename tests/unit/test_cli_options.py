"""Click's parameters have the names and types of the functions that take them."""

from __future__ import annotations

from types import GenericAlias
from typing import get_type_hints

import click
import pytest

from command_line.main import HELPS, load


def leaves() -> dict[str, click.Command]:
    """Return the commands with a function, by the words that users type after `megabuild`."""
    commands: dict[str, click.Command] = {}
    for name in HELPS:
        command = load(name)
        parts = command.commands if isinstance(command, click.Group) else {"": command}
        commands |= {f"{name} {part}".strip(): command for part, command in parts.items()}
    return commands


def passed_type(parameter: click.Parameter, default: object) -> object:
    """Return the type of the values that click passes for a parameter."""
    kind = parameter.type
    if isinstance(kind, click.Path):
        single: type = kind.type or str
    else:
        types = {"boolean": bool, "integer range": int, "float range": float, "choice": str, "text": str}
        single = types[kind.name]
    if parameter.multiple or parameter.nargs == -1:
        return GenericAlias(tuple, (single, ...))
    return single if parameter.required or default is not None else single | None


@pytest.mark.parametrize("command", leaves().values(), ids=leaves())
def test_functions_take_the_values_that_click_passes(command: click.Command) -> None:
    assert command.callback is not None
    taken = get_type_hints(command.callback)
    assert taken.pop("context", click.Context) is click.Context
    assert taken.pop("return").__name__ == "Result"
    defaults = command.make_context("program", [], resilient_parsing=True).params
    passed = {p.name: passed_type(p, defaults[p.name]) for p in command.params if p.name in defaults}
    assert taken == passed
