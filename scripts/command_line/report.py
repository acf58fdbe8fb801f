"""`megabuild report`: the page about a run, made once more, also of one that goes on or was killed."""

from __future__ import annotations

from typing import Any

import click

from command_line.options import GroupedCommand, option
from command_line.root import output_folder
from groundwork.result import Result

EXAMPLES = """
{prog} linux_64_cpu_debian            the last run's, or the one that goes on
{prog} linux_64_cpu-rehearsal -o DIR  below another output folder
"""


@click.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument("config")
@option("Where it lies", "--output", "-o", metavar="DIR",
        help="The build's.  [default: output/ in the repository]")  # fmt: skip
@option("Only showing", "--json", "as_json", is_flag=True,
        help="One JSON document on standard output, nothing else.")  # fmt: skip
@click.pass_context
def report(context: click.Context, /, **given: Any) -> Result:
    """Make the page about CONFIG's last run again: a timeline, what was slow, what came from where.

    Every run leaves one when it ends, `report.html` in its folder. This makes it of a run that still goes on, or that
    was killed. CONFIG is what the run was called. The page needs nothing beside it, and can be sent to others.
    """
    from megabuild.report.run_page import remake

    context.obj.json = given["as_json"]
    return remake(output_folder(given["output"]) / given["config"], given["config"])
