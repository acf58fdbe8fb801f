"""Click commands with options in named groups, with examples at the end of the help text, and groups of commands."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from typing import Any

import click
from click.exceptions import NoSuchCommand

from groundwork.folding import fold
from groundwork.option_fields import option

_OTHERS = "Other options"
#: The same as in pyproject.toml: a checkout has no installed metadata to read it from.
VERSION = "0.1.0"
#: Help texts are as wide as the terminal, up to 112 columns; click's own limit is 80.
WIDEST = 112
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": WIDEST}
#: Between an example's command and its remark.
_REMARK = re.compile(r" {2,}")


class WholeWords(click.HelpFormatter):
    """Breaks help texts at blanks only: names of options and features have hyphens."""

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write terms and their texts in two columns; the text of a long term begins below it."""
        terms = list(rows)
        widest = min(col_max, self.width // 3 + 4)
        fitting = [len(term) for term, _ in terms if len(term) <= widest]
        indent = " " * (self.current_indent + max(fitting, default=widest) + col_spacing)
        for term, text in terms:
            start = " " * self.current_indent + term
            if len(term) > widest:
                self.write(f"{start}\n")
                start = ""
            self._write_folded(text, first=start.ljust(len(indent)), rest=indent)

    def write_text(self, text: str) -> None:
        """Write paragraphs."""
        indent = " " * self.current_indent
        for number, paragraph in enumerate(re.split(r"\n\s*\n", text)):
            if number:
                self.write("\n")
            self._write_folded(" ".join(paragraph.split()), first=indent, rest=indent)

    def _write_folded(self, text: str, *, first: str, rest: str) -> None:
        lines = textwrap.wrap(
            text, self.width, initial_indent=first, subsequent_indent=rest,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        for line in lines or [first.rstrip()]:
            self.write(f"{line}\n")


class HelpContext(click.Context):
    """A context whose help texts keep words whole."""

    formatter_class = WholeWords


class GroupedOption(click.Option):
    """An option that belongs to a group of the help text."""

    def __init__(self, *args: Any, group: str = _OTHERS, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group


class GroupedCommand(click.Command):
    """Shows options group by group, in the order of declaration, then examples."""

    context_class = HelpContext

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
        others = groups.pop(_OTHERS, [])
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)
        with formatter.section(_OTHERS if groups else "Options"):
            formatter.write_dl(others)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples: each command whole, its remark to the right of it or, without room there, below."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples.strip().splitlines():
                    for row in _example_rows(example, ctx.command_path, formatter.width):
                        formatter.write(f"{row}\n")


def _example_rows(example: str, program: str, width: int) -> list[str]:
    """Return the lines of an example, ``{prog} ARGUMENTS   REMARK``, or of a sentence."""
    line = f"  {example.format(prog=program)}"
    if len(line) <= width:
        return [line]
    if not example.startswith("{prog}"):
        return fold(line, width)
    command, *remark = _REMARK.split(line.strip(), maxsplit=1)
    rows = [f"  {command}"]
    if remark:
        rows += fold(f"      {remark[0]}", width)
    return rows


class CommandGroup(click.Group):
    """Lists its commands with whole sentences, which click would cut off, and suggests one for an unknown name."""

    context_class = HelpContext

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, context_settings=SETTINGS, **kwargs)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands."""
        sentences: list[tuple[str, str]] = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None:
                sentences.append((name, command.get_short_help_str(200)))
        with formatter.section("Commands"):
            formatter.write_dl(sentences)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named first; the error for an unknown one has the names to guess from."""
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as unknown:
            names = self.list_commands(ctx)
            raise NoSuchCommand(unknown.command_name, possibilities=names, ctx=ctx) from None


#: ``--json``: standard output then holds one JSON document.
json_option = click.option(
    "--json", cls=GroupedOption, is_flag=True, expose_value=False,
    help="Print one JSON document instead of text.",
)  # fmt: skip
version_option = click.version_option(VERSION, help="Print the version.")


def builds_folder() -> Any:
    """Declare ``--output`` of a command that reads builds."""
    return option(
        "Where", "--output", "-o", metavar="DIR",
        help="Output folder of the builds.  [default: output/ in the repository]",
    )  # fmt: skip
