"""`megabuild status`: shows runs from any terminal, while they run and afterwards."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import click
from rich.console import Console

from command_line.options import GroupedCommand, json_option, option, output_option
from command_line.progress_display import moves, moving_lines, show_records
from command_line.root import output_folder
from command_line.run_command import Invocation
from groundwork import files
from groundwork.errors import ConfigError, UsageError
from groundwork.result import Result
from megabuild.status.reading import RunState, read_run_state, run_names
from megabuild.status.show import status_result

EXAMPLES = """
{prog}                         every config that was built
{prog} linux_64_cpu_debian     with its rehearsals and other releases
{prog} linux_64_cpu --follow   until it ends, with its exit code
{prog} linux_64_cpu --page run.html   durations of tasks and steps
"""
SHOW = "Show"


@click.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument("configs", nargs=-1, metavar="[CONFIG]...")
@option(SHOW, "--follow", "-f", is_flag=True,
        help="Wait until the runs have ended; exit with the run's code.")  # fmt: skip
@option(SHOW, "--page", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
        help="Write an HTML page with the durations of one CONFIG's last run.")  # fmt: skip
@output_option
@json_option
@click.pass_obj
def status(
    invocation: Invocation,
    /,
    *,
    configs: tuple[str, ...],
    follow: bool,
    page: Path | None,
    output: str | None,
) -> Result:
    """Show the progress or the result of each CONFIG's last run.

    Without CONFIG, it shows every run. CONFIG may be a pattern. status never locks or writes files: it works during a
    run, for other users, and after kill -9.
    """
    parent = output_folder(output)
    folders = [parent / name for name in run_names(parent, configs)]
    if page is not None:
        from megabuild.status.trace import run_page  # imported late: only this needs Jinja2

        if not folders:
            raise ConfigError(f"{parent}: no run", "build a config first")
        if len(folders) != 1:
            names = ", ".join(path.name for path in folders)
            raise UsageError(f"--page takes one run; {len(folders)} match", f"name one of: {names}")
        files.write(page, run_page(folders[0]), mode=0o644)
        lines = [f"page of {folders[0].name}: {page}"]
        return Result(format="status", format_version=2, document={"page": str(page)}, lines=lines)
    runs = _follow(folders, configs, invocation) if follow else [read_run_state(path) for path in folders]
    width = max(40, shutil.get_terminal_size().columns)
    return status_result(runs, width, time.time(), followed=follow)


def _follow(folders: Sequence[Path], configs: Sequence[str], invocation: Invocation) -> list[RunState]:
    """Wait until all runs have ended; a terminal shows their progress meanwhile."""
    console = Console(stderr=invocation.json, soft_wrap=True)
    if not configs:
        folders = [path for path in folders if read_run_state(path).standing == "running"] or folders
    lines = moving_lines(console)
    with lines if moves(console) else nullcontext():
        while True:
            runs = [read_run_state(path) for path in folders]
            if moves(console):
                running = [run.record for run in runs if run.record and run.standing == "running"]
                show_records(lines, running, time.time())
            if not any(run.standing == "running" for run in runs):
                return runs
            time.sleep(1)
