"""`megabuild configs`: the list of configs, and keeping them in step with the matrix; and how some are chosen."""

from __future__ import annotations

from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from command_line.options import json_option
from command_line.root import feedstock, repository
from groundwork.errors import UsageError
from groundwork.result import Result
from megabuild.configs.config import available, list_configs, select


@click.command()
@json_option()
@click.option(
    "--write", "action", flag_value="write", help="Regenerate .ci_support from conda_build_config.yaml."
)
@click.option(
    "--check",
    "action",
    flag_value="check",
    help="Exit with 3 if .ci_support is out of step.",
)
def configs(action: str | None) -> Result:
    """List the configs, or regenerate them from conda_build_config.yaml."""
    if action is None:
        return list_configs(repository(), available(repository()))
    from megabuild.configs.matrix import compared  # the engine takes a moment to import

    return compared(repository(), mend=action == "write")


def choose(names: Sequence[str], words: Sequence[str], *, all_of: str = "") -> tuple[str, ...]:
    """Return the names of the configs to build, each once: ``words`` are names, or patterns that match several.

    Without any, the only config there is. With ``all_of``, all of that platform (conda's name of it).

    Raises UsageError: Nothing matches, or none of several is named.
    """
    if all_of:
        if words:
            raise UsageError("--all takes no names", "leave out --all or the names")
        return select(names, f"{all_of.replace('-', '_')}_*")
    chosen: dict[str, None] = {}
    for word in words:
        name = word.removesuffix(".yaml")
        pattern = name not in names and any(sign in name for sign in "*?[")
        chosen |= dict.fromkeys(select(names, name) if pattern else (name,))
    if chosen:
        return tuple(chosen)
    if len(names) == 1:
        click.echo(f"{names[0]} is the only config", err=True)
        return tuple(names)
    raise UsageError("which config?", f"name one: {', '.join(names)}")


def config_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the config names that start with what was typed, of the feedstock that was named before it."""
    names = available(feedstock(context.params.get("root")))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
