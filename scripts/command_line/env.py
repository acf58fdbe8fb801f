"""`megabuild env`: environments of what was built, without conda; and how conda and its like make them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from command_line.options import GroupedCommand, option
from command_line.root import output_folder
from command_line.run_command import Invocation
from groundwork.result import Result

EXAMPLES = """
{prog} ./env pytorch_scatter --from linux_64_cpu_wheel
{prog} ./env pytorch-gpu pytorch_sparse --from linux_64_cuda132_wheel -p 3.12
{prog} ./env 'pytorch 2.13.*' ipython --from linux_64_cuda130 -c conda-forge
"""
WHAT = "What it consists of"
SHOW = "Only showing"


@click.group()
def env() -> None:
    """Make environments of what was built."""


@env.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("packages", metavar="PACKAGE...", nargs=-1, required=True)
@option(WHAT, "--from", "config", metavar="CONFIG", required=True,
        help="The config that was built, with what its run added: linux_64_cpu-rehearsal.")  # fmt: skip
@option(WHAT, "--python", "-p", metavar="X.Y", help="Its Python.  [default: the newest that fits]")
@option(WHAT, "--channel", "-c", "channels", multiple=True, metavar="URL|NAME|DIR",
        help="A further channel, after the built one; may be repeated.")  # fmt: skip
@option(WHAT, "--output", "-o", metavar="DIR", help="The build's.  [default: output/ in the repository]")
@option(SHOW, "--plan", "plan_only", is_flag=True, help="Show what would be installed, and end.")
@option(SHOW, "--json", "as_json", is_flag=True, help="One JSON document on standard output, nothing else.")
@click.pass_context
def create(context: click.Context, /, **given: Any) -> Result:
    """Make an environment in DIR with PACKAGEs of a build, and what they need; no conda takes part.

    DIR must be new or empty, or have been made so: then it is brought up to date. Where the machine has no GPU that
    the packages ask for, CONDA_OVERRIDE_CUDA stands in.
    """
    from command_line.progress_display import Screen
    from groundwork import in_use
    from groundwork.files import cache_folder
    from megabuild.environments import install, prefix, report

    invocation: Invocation = context.obj
    invocation.json = given["as_json"]
    folder, began = given["folder"], time.monotonic()
    wanted = prefix.requested(
        output_folder(given["output"]),
        given["config"],
        given["packages"],
        python=given["python"],
        channels=given["channels"],
    )
    install.check_folder(folder)
    solution = prefix.solve(wanted)
    if given["plan_only"]:
        return report.planned(folder, solution)
    cache = cache_folder(os.environ)
    with in_use.using(cache), Screen(Console(stderr=invocation.json, soft_wrap=True)) as shown:
        shown.note(report.summary(solution))
        install.create(folder, wanted, solution, cache=cache, report=shown.note)
    return report.created(folder, solution, time.monotonic() - began)
