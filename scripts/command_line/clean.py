"""`megabuild clean`: what builds have left, what it costs to have again, and removing it."""

from __future__ import annotations

import os
import re
import shlex

import click

from command_line.options import GroupedCommand, option
from command_line.root import output_folder
from groundwork.errors import UsageError
from groundwork.files import cache_folder
from groundwork.result import Result
from megabuild.cleaning.clean import Choice, remove
from megabuild.cleaning.kinds import KINDS
from megabuild.cleaning.report import clean_result, plan_result
from megabuild.cleaning.survey import survey
from megabuild.run.commands import own_program

EXAMPLES = """
{prog}                                    all there is, and what has expired
{prog} --apply                            remove what has expired
{prog} --older 30d --apply                what nobody used for so long
{prog} linux_64_cpu --kind tree --kind work
                                        ... of one config
"""
WHAT = "What goes"
HOW = "Showing and doing"
_UNITS = {"d": 86400.0, "h": 3600.0, "w": 7 * 86400.0}


@click.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument("configs", nargs=-1, metavar="[CONFIG]...")
@option(WHAT, "--kind", "kinds", multiple=True, type=click.Choice(list(KINDS)), metavar="KIND",
        help=f"Only this kind; may be repeated: {', '.join(KINDS)}.")  # fmt: skip
@option(WHAT, "--older", metavar="TIME", help="Only what nobody has used for so long: 30d, 2w, 12h.")
@option(HOW, "--plan", "action", flag_value="plan", help="Show it, and remove nothing.  [default]")
@option(HOW, "--apply", "action", flag_value="apply", help="Remove it.")
@option(HOW, "--json", "as_json", is_flag=True, help="One JSON document on standard output, nothing else.")
@option("Where", "--output", "-o", metavar="DIR",
        help="The builds'.  [default: output/ in the repository]")  # fmt: skip
@click.pass_context
def clean(
    context: click.Context,
    configs: tuple[str, ...],
    kinds: tuple[str, ...],
    older: str | None,
    action: str | None,
    as_json: bool,
    output: str | None,
) -> Result:
    """Show what builds have left on the disk and what having it again costs, or remove some of it.

    Without --kind and --older that is what has expired: logs after 90 days, records after a year, and channels that no
    published package needs, after 30. Packages and wheels that were built go only where their kind is named. What a
    running build holds stays, as does everything that this program has not made.
    """
    context.obj.json = as_json
    folder, cache = output_folder(output), cache_folder(os.environ)
    choice = Choice(configs=configs, kinds=kinds, older=_seconds(older) if older is not None else None)
    items = survey(folder, cache)
    chosen = choice.of(items)
    if action == "apply":
        return clean_result(items, chosen, remove(chosen, folder, cache))
    words = [*configs, *(word for kind in kinds for word in ("--kind", kind))]
    words += ["--older", older] if older is not None else []
    words += ["-o", output] if output else []
    return plan_result(items, chosen, shlex.join([*own_program(), "clean", *words, "--apply"]))


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d{1,6})([dhw])", text.strip().lower())
    if match is None:
        raise UsageError(f"'{text}' is no age", "write it as 30d, 2w or 12h")
    return int(match[1]) * _UNITS[match[2]]
