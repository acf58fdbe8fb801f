"""From what the user gave, a name, a filter or nothing, to one config."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from megabuild.configs.config import select
from megabuild.errors import UsageError


def choose(names: Sequence[str], wanted: str | None, pattern: str | None, *, may_ask: bool) -> str:
    """Return the name of the config to build.

    Without a name: the only config there is, or that the filter leaves; else the user is asked, on a terminal.

    Parameters
    ----------
    names:
        All configs.
    wanted:
        The name given, or None.
    pattern:
        The filter given, or None.
    may_ask:
        A person sits at the terminal.

    Raises
    ------
    UsageError
        Nothing matches the filter, the name is not among what it leaves, or there is nobody to ask.
    """
    choices = select(names, pattern) if pattern else tuple(names)
    if wanted is not None:
        name = wanted.removesuffix(".yaml")
        if pattern and name in names and name not in choices:
            raise UsageError(
                f"{name} does not match the filter '{pattern}'", f"it leaves {', '.join(choices)}"
            )
        return name
    if len(choices) == 1:
        click.echo(f"{choices[0]} is the only config that matches", err=True)
        return choices[0]
    if not may_ask:
        raise UsageError("which config?", "name one; --list shows them")
    return _ask(choices)


def _ask(choices: Sequence[str]) -> str:
    width = len(str(len(choices)))
    click.echo("Which config?\n", err=True)
    for number, name in enumerate(choices, 1):
        click.echo(f"{number:{width}}. {name}", err=True)
    while True:
        answer = click.prompt("\n>", prompt_suffix=" ", err=True).strip()
        if answer in choices:
            return str(answer)
        if answer.isdigit() and 1 <= int(answer) <= len(choices):
            return choices[int(answer) - 1]
        click.echo(f"a number from 1 to {len(choices)}, or a name", err=True)


def person_present() -> bool:
    """Tell whether questions can be asked: input comes from a terminal, and so do answers."""
    return sys.stdin.isatty() and sys.stderr.isatty()
