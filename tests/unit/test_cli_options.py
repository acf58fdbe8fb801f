"""Click's parameters have the names and types of the functions that take them, and docs/options.md lists them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import GenericAlias
from typing import get_type_hints

import click
import pytest

from command_line.main import HELPS, load
from command_line.options import GroupedCommand
from command_line.run_command import Invocation

RENEW = "scripts/test tests/unit/test_cli_options.py --renew-options"
_PROGRAMS = {"build": "python3 build-locally.py", "install-pyg": "scripts/install-pyg"}
_HEAD = """# Options

Every command's options, made from the texts of `--help`. [Contributing](../CONTRIBUTING.md#change-something) says how
to renew this page.
"""


def commands() -> dict[str, click.Command]:
    """Return the commands with a function, by the words that users type after `megabuild`."""
    found: dict[str, click.Command] = {}
    for name in HELPS:
        command = load(name)
        parts = command.commands if isinstance(command, click.Group) else {"": command}
        found |= {f"{name} {part}".strip(): command for part, command in parts.items()}
    return found


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


@pytest.mark.parametrize("command", commands().values(), ids=commands())
def test_functions_take_the_values_that_click_passes(command: click.Command) -> None:
    assert command.callback is not None
    taken = get_type_hints(command.callback)
    assert taken.pop("invocation", Invocation) is Invocation
    assert taken.pop("return").__name__ == "Result"
    defaults = command.make_context("program", [], resilient_parsing=True).params
    passed = {p.name: passed_type(p, defaults[p.name]) for p in command.params if p.name in defaults}
    assert taken == passed


def escape(text: str) -> str:
    """Return text on one line, with a backslash before signs that Markdown would not show."""
    return re.sub(r"[<*|]", r"\\\g<0>", " ".join(text.split()))


def describe(name: str, command: click.Command) -> Iterator[str]:
    """Yield the lines about a command: usage, help text, options by group, examples, notes."""
    program = _PROGRAMS.get(name, f"python3 scripts/megabuild {name}")
    context = click.Context(command)
    examples, _, notes = getattr(command, "examples", "").strip().partition("\n\n")
    yield from (f"## {name}", f"`{' '.join([program, *command.collect_usage_pieces(context)])}`", "")
    for paragraph in filter(None, f"{command.help}\n\n{notes}".split("\n\n")):
        yield from (*textwrap.wrap(escape(paragraph), 120), "")
    yield from ("| option | effect |", "|---|---|")
    group = ""
    for option in command.params:
        if not isinstance(option, click.Option) or option.name == "version":
            continue
        if group != (group := getattr(option, "group", "")) and isinstance(command, GroupedCommand):
            yield f"| **{group}** | |"
        names, effect = map(escape, option.get_help_record(context) or ())
        yield f"| `{names}` | {effect} |"
    if examples:
        commented = re.sub(r"(?m)^(.*?\S  +)(?=\S)", r"\1# ", examples).format(prog=program)
        yield from ("", "```console", *(f"$ {line}" for line in commented.splitlines()), "```")
    yield ""


def test_the_page_of_options_is_in_step(repository: Path, request: pytest.FixtureRequest) -> None:
    page = repository / "docs" / "options.md"
    lines = [line for name, command in commands().items() for line in describe(name, command)]
    text = "\n".join([_HEAD, *lines])
    if request.config.getoption("--renew-options"):
        page.write_text(text, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == text, f"run: {RENEW}"
