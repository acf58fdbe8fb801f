"""A click command whose options stand in named groups in the help text, followed by examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_OTHERS = "Other options"
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
        """Write the examples without re-filling their lines."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.strip().splitlines():
                    formatter.write(
                        f"{'':{formatter.current_indent}}{line.strip().format(prog=ctx.command_path)}\n"
                    )


def option(group: str, *names: str, **attributes: Any) -> Callable[[Decorated], Decorated]:
    """Declare an option in a group; everything else as for ``click.option``."""
    return click.option(*names, cls=GroupedOption, group=group, **attributes)
