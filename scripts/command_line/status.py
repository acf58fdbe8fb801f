"""`megabuild status`: the status of runs, from any terminal, while they go on and afterwards."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from command_line.options import GroupedCommand, option
from command_line.progress_display import moving_lines
from command_line.root import output_folder
from command_line.run_command import Invocation
from groundwork import files
from groundwork.errors import UsageError
from groundwork.result import Result
from groundwork.text import plain
from megabuild.status.reading import LastRun, read_last_run, run_names
from megabuild.status.show import status_result

EXAMPLES = """
{prog}                         every config that was run
{prog} linux_64_cpu_debian     its runs, with rehearsals and other releases
{prog} linux_64_cpu --follow   until it ends, with its exit code
{prog} linux_64_cpu --page run.html   what took how long
{prog} --json -o /other/output for a script
"""
SHOW = "Showing"
_SECONDS = 1.0


@click.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument("configs", nargs=-1, metavar="[CONFIG]...")
@option(SHOW, "--follow", "-f", is_flag=True, help="Continue until the runs have ended.")
@option(SHOW, "--json", "as_json", is_flag=True, help="One JSON document on standard output, nothing else.")
@option(
    SHOW,
    "--page",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write an HTML page on the last run of one CONFIG that has ended: what took how long.",
)
@option("Where", "--output", "-o", metavar="DIR",
        help="The builds'.  [default: output/ in the repository]")  # fmt: skip
@click.pass_context
def status(
    context: click.Context,
    configs: tuple[str, ...],
    follow: bool,
    as_json: bool,
    page: Path | None,
    output: str | None,
) -> Result:
    """Show the status of each CONFIG's last run, while it goes on and afterwards.

    The command shows what the run is doing and how far it is, or how it ended, or where it died. Without CONFIG, it
    shows every run that has left a record; patterns are possible. It locks and writes nothing: it works beside a run,
    as another user, and after kill -9. The exit code is 0 however a run ended; with --follow it is the run's.
    """
    context.obj.json = as_json
    if page is not None:
        return _write_page(page, output_folder(output), configs)
    return show(context.obj, output_folder(output), configs, follow=follow)


def show(invocation: Invocation, output: Path, configs: Sequence[str], *, follow: bool = False) -> Result:
    """Return the status of runs below an output folder, now or once they have ended."""
    folders = [output / name for name in run_names(output, configs)]
    if follow and not configs:
        folders = [folder for folder in folders if read_last_run(folder).standing == "running"] or folders
    runs = _follow(folders, invocation) if follow else [read_last_run(folder) for folder in folders]
    width = max(40, shutil.get_terminal_size().columns)
    return status_result(runs, width, time.time(), followed=follow)


def _write_page(page: Path, output: Path, configs: Sequence[str]) -> Result:
    from megabuild.status.trace import run_page

    names = run_names(output, configs)
    if len(names) != 1:
        raise UsageError(f"--page is for one run, there are {len(names)}", f"name one of: {', '.join(names)}")
    files.write(page, run_page(output / names[0]), mode=0o644)
    result = status_result([read_last_run(output / names[0])], 80, time.time())
    return replace(
        result, document={**result.document, "page": str(page)}, lines=[f"page of {names[0]}: {page}"]
    )


def _follow(folders: Sequence[Path], invocation: Invocation) -> list[LastRun]:
    """Wait until no run goes on; on a terminal lines that move show how far each is."""
    console = Console(stderr=invocation.json, soft_wrap=True)
    moves = console.is_terminal and not console.is_dumb_terminal
    with Live(console=console, transient=True, auto_refresh=False) as live:
        while True:
            runs = [read_last_run(folder) for folder in folders]
            if moves:
                shown = [
                    (plain(run.name), run.record) for run in runs if run.record and run.standing == "running"
                ]
                rows = [
                    row for name, record in shown for row in (Text(name), moving_lines(record, time.time()))
                ]
                live.update(Group(*rows), refresh=True)
            if not any(run.standing == "running" for run in runs):
                return runs
            time.sleep(_SECONDS)
