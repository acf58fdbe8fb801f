"""Click commands with options in named groups, and with examples at the end of the help text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_OTHERS = "Other options"
#: The same as in pyproject.toml: a checkout has no installed metadata to read it from.
VERSION = "0.1.0"
#: Help texts are as wide as the terminal, up to 112 columns; click's own limit is 80.
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 112}
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class GroupedOption(click.Option):
    """An option that belongs to a group of the help text."""

    def __init__(self, *args: Any, group: str = _OTHERS, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group


class GroupedCommand(click.Command):
    """Shows options group by group, in the order of declaration, then examples verbatim."""

    def __init__(self, *, examples: str = "", **kwargs: Any) -> None:
        super().__init__(context_settings=SETTINGS, **kwargs)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group."""
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
        """Write the examples verbatim."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.strip().splitlines():
                    formatter.write(f"  {line.format(prog=ctx.command_path)}\n")


def option(group: str, *names: str, **attributes: Any) -> Callable[[Decorated], Decorated]:
    """Declare an option in a group; other arguments are those of ``click.option``."""
    return click.option(*names, cls=GroupedOption, group=group, **attributes)


#: ``--json``: standard output then holds one JSON document.
json_option = option(
    _OTHERS, "--json", is_flag=True, expose_value=False,
    help="Print one JSON document instead of text.",
)  # fmt: skip
#: ``--output`` of a command that reads builds.
output_option = option(
    "Where", "--output", "-o", metavar="DIR",
    help="Output folder of the builds.  [default: output/ in the repository]",
)  # fmt: skip
version_option = click.version_option(VERSION, help="Print the version.")
