"""A click command whose options stand in named groups in the help text, followed by examples."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from groundwork.text import meant

_GAP = re.compile(r" {2,}")
_OTHERS = "Other options"
#: The distribution's, as in pyproject.toml: a checkout that runs from its folder is not installed.
VERSION = "0.1.0"
#: As wide as the terminal, up to what is still read with ease; click's own limit is 80.
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 112}
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class GroupedOption(click.Option):
    """An option that belongs to a group of the help text."""

    def __init__(self, *args: Any, group: str = _OTHERS, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group


class GroupedCommand(click.Command):
    """Shows options group by group, in the order in which they are declared, and then examples as they are."""

    def __init__(self, *args: Any, examples: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, one section per group."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                groups.setdefault(getattr(parameter, "group", _OTHERS), []).append(record)
        groups[_OTHERS] = groups.pop(_OTHERS, [])  # last
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, what they do in a column of its own; what is too long for that goes below."""
        super().format_epilog(ctx, formatter)
        if not self.examples:
            return
        lines = [line.strip().format(prog=ctx.command_path) for line in self.examples.strip().splitlines()]
        rows = [_GAP.split(line, maxsplit=1) for line in lines]
        longest = max((len(row[1]) for row in rows if len(row) > 1), default=0)
        with formatter.section("Examples"):
            room = formatter.width - formatter.current_indent - longest - 2
            column = max((len(row[0]) for row in rows if len(row) > 1 and len(row[0]) <= room), default=0)
            for command, *what in rows:
                line = f"{command:{column}}  {what[0]}" if what else command
                if what and len(command) > column:
                    line = f"{command}\n{'':{formatter.current_indent + 4}}{what[0]}"
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class OneOf(click.Choice[str]):
    """A closed list of words, which says what may have been meant."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Return what is said of another word."""
        close = meant(str(value), self.choices, otherwise=" ").strip()
        return f"'{value}' is not one of {', '.join(self.choices)}{'; ' if close else ''}{close}"


def option(group: str, *names: str, **attributes: Any) -> Callable[[Decorated], Decorated]:
    """Declare an option in a group; else as for ``click.option``, but that closed lists are :class:`OneOf`."""
    if isinstance(attributes.get("type"), click.Choice):
        attributes["type"] = OneOf(attributes["type"].choices)
    return click.option(*names, cls=GroupedOption, group=group, **attributes)


def version(name: str) -> Callable[[Decorated], Decorated]:
    """Declare ``--version``."""
    return click.version_option(VERSION, prog_name=name, help="Show the version and end.")
