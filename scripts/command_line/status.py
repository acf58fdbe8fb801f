"""`megabuild status`: shows runs from any terminal, while they run and afterwards."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from command_line.options import GroupedCommand, json_option, option, output_option
from command_line.progress_display import moving_lines, named_lines, redraw
from command_line.root import output_folder
from command_line.run_command import Invocation
from groundwork.result import Result
from megabuild.status.reading import RunState, Standing, read_run_state, run_names
from megabuild.status.show import status_result

EXAMPLES = """
{prog}                         every config that was built
{prog} linux_64_cpu_debian     with its rehearsals and other releases
{prog} linux_64_cpu --follow   until it ends, with its exit code
"""
SHOW = "Show"


@click.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument("configs", nargs=-1, metavar="[CONFIG]...")
@option(SHOW, "--follow", "-f", is_flag=True,
        help="Wait until the runs have ended; exit with the run's code.")  # fmt: skip
@output_option
@json_option
@click.pass_obj
def status(
    invocation: Invocation,
    /,
    *,
    configs: tuple[str, ...],
    follow: bool,
    output: str | None,
) -> Result:
    """Show the progress or the result of each CONFIG's last run.

    Without CONFIG, it shows every run. CONFIG may be a pattern. status never locks or writes files: it works during a
    run, for other users, and after kill -9.
    """
    parent = output_folder(output)
    folders = [parent / name for name in run_names(parent, configs)]
    runs = _follow(folders, configs, invocation) if follow else [read_run_state(path) for path in folders]
    return status_result(runs, time.time(), followed=follow)


def _follow(folders: Sequence[Path], configs: Sequence[str], invocation: Invocation) -> list[RunState]:
    """Wait until all runs have ended; a terminal shows their progress meanwhile."""
    console = Console(stderr=invocation.json, soft_wrap=True)
    if not configs:
        folders = [path for path in folders if read_run_state(path).standing is Standing.RUNNING] or folders
    with moving_lines(console) as lines:
        while True:
            runs = [read_run_state(path) for path in folders]
            running = [run.record for run in runs if run.record and run.standing is Standing.RUNNING]
            redraw(lines, [line for record in running for line in named_lines(record, time.time())])
            if not any(run.standing is Standing.RUNNING for run in runs):
                return runs
            time.sleep(1)
