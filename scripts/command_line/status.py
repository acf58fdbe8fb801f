"""`megabuild status`: where runs stand, from any terminal, while they go on and afterwards."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from command_line.options import GroupedCommand, option
from command_line.root import output_folder
from command_line.run_command import Invocation
from groundwork.result import Result
from groundwork.text import Signs
from groundwork.wording import plain
from megabuild.state.reading import Found, look, names
from megabuild.state.report import changes, found_lines, status_result

EXAMPLES = """
{prog}                         every config that was run
{prog} linux_64_cpu_debian     its runs, with rehearsals and other releases
{prog} linux_64_cpu --follow   until it ends, with its exit code
{prog} --json -o /other/output for a script
"""
SHOW = "Showing"
_SECONDS = 1.0


@click.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument("configs", nargs=-1, metavar="[CONFIG]...")
@option(SHOW, "--follow", "-f", is_flag=True, help="Go on showing until the runs have ended.")
@option(SHOW, "--json", "as_json", is_flag=True, help="One JSON document on standard output, nothing else.")
@option("Where", "--output", "-o", metavar="DIR",
        help="The builds'.  [default: output/ in the repository]")  # fmt: skip
@click.pass_context
def status(
    context: click.Context, configs: tuple[str, ...], follow: bool, as_json: bool, output: str | None
) -> Result:
    """Say where the run of each CONFIG stands, while it goes on and afterwards.

    That is what goes on and how far it is, or how it ended, or where it died. Without CONFIG, every one that has left
    a state; patterns are possible. Nothing is locked, written or asked: it works beside a run, as another user, and
    after kill -9. The exit code is 0 whatever became of a run; with --follow it is that of the run.
    """
    context.obj.json = as_json
    return show(context.obj, output_folder(output), configs, follow=follow)


def show(invocation: Invocation, output: Path, configs: Sequence[str], *, follow: bool = False) -> Result:
    """Say where runs below an output folder stand, now or until they have ended."""
    folders = [output / name for name in names(output, configs)]
    if follow and not configs:
        folders = [folder for folder in folders if look(folder).standing == "running"] or folders
    found = _follow(folders, invocation) if follow else [look(folder) for folder in folders]
    return status_result(found, _width(), time.time(), followed=follow)


def _follow(folders: Sequence[Path], invocation: Invocation) -> list[Found]:
    """Show runs until none goes on: on a terminal as it stands, elsewhere a line for every change."""
    console = Console(stderr=invocation.json, soft_wrap=True)
    if console.is_terminal and not console.is_dumb_terminal:
        return _redraw(folders, console)
    before: dict[str, Found] = {}
    while True:
        found = [look(folder) for folder in folders]
        for line in changes(before, found, time.time()):
            console.out(Signs.of(console.file).in_place_of_unicode(plain(line)), highlight=False)
        console.file.flush()
        if not any(one.standing == "running" for one in found):
            return found
        before = {one.name: one for one in found}
        time.sleep(_SECONDS)


def _redraw(folders: Sequence[Path], console: Console) -> list[Found]:
    with Live(console=console, transient=True, auto_refresh=False) as live:
        while True:
            found = [look(folder) for folder in folders]
            if not any(one.standing == "running" for one in found):
                return found
            lines = [line for one in found for line in found_lines(one, _width(), time.time())]
            text = Signs.of(console.file).in_place_of_unicode("\n".join(map(plain, lines)))
            live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
            time.sleep(_SECONDS)


def _width() -> int:
    return max(40, shutil.get_terminal_size().columns)
