"""`megabuild status`: shows runs from any terminal, while they run and afterwards."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console

from command_line.options import builds_folder, json_option
from command_line.parameters import command
from command_line.progress_display import moving_lines, named_lines, redraw
from command_line.root import output_folder
from command_line.run_command import Invocation
from groundwork.errors import UsageError
from groundwork.option_fields import argument, option, switch
from groundwork.result import Result
from groundwork.text import display
from megabuild.status.reading import RunState, Standing, is_meant, read_run_state, run_names
from megabuild.status.show import status_result

EXAMPLES = """
{prog}                         every config that was built
{prog} linux_64_cpu_debian     with its rehearsals and other releases
{prog} linux_64_cpu --follow   until it ends, with its exit code
{prog} --page time.html        a picture of where the time went
"""


def parse_page(text: str) -> Path:
    """Return the path of a page. Raises UsageError: It cannot be a file."""
    path = Path(text)
    if not path.name or path.is_dir():
        raise UsageError(f"--page {text}: not a file", "pass the name of a file: --page time.html")
    return path


@dataclass(frozen=True, kw_only=True)
class StatusOptions:
    """The options of the command."""

    configs: tuple[str, ...] = argument("[CONFIG]...", required=False)
    follow: bool = switch(
        "Show", "--follow", "-f", help="Wait until the runs have ended; exit with the run's code."
    )
    page: Path | None = option(
        "Show", "--page", metavar="FILE", typed=str, convert=parse_page,
        help="Also write a picture of where the time went, as one HTML page.",
    )  # fmt: skip
    output: str | None = builds_folder()


@command(StatusOptions, examples=EXAMPLES)
@json_option
@click.pass_obj
def status(invocation: Invocation, options: StatusOptions) -> Result:
    """Show the progress or the result of each CONFIG's last run.

    Without CONFIG, it shows every run. CONFIG may be a pattern. status never locks files, and writes only FILE: it
    works during a run, for other users, and after kill -9.
    """
    parent = output_folder(options.output)
    folders = [parent / name for name in run_names(parent, options.configs)]
    if options.follow:
        followed = _followed(folders, options.configs)
        runs = _follow(followed, Console(stderr=invocation.json, soft_wrap=True))
    else:
        runs = [read_run_state(folder) for folder in folders]
    now = time.time()
    result = status_result(runs, now, followed=options.follow)
    if options.page is None:
        return result
    # imported late: it needs an extra
    from megabuild.timeline.page import write_page

    write_page(runs, options.page, now)
    return replace(result, lines=[*result.lines, "", f"page: {display(options.page)}"])


def _followed(folders: Sequence[Path], configs: Sequence[str]) -> list[Path]:
    """Return the folders of the runs to follow, of each config apart: runs in progress, else the config's own.

    The others, such as a rehearsal that failed last week, must not determine the exit code.
    """
    chosen: dict[Path, None] = {}
    for config in configs or ("*",):
        meant = [folder for folder in folders if is_meant(folder.name, config)]
        running = [folder for folder in meant if read_run_state(folder).standing is Standing.RUNNING]
        own = [folder for folder in meant if folder.name == config]
        chosen |= dict.fromkeys(running or own or meant)
    return list(chosen)


def _follow(folders: Sequence[Path], console: Console) -> list[RunState]:
    """Wait until all runs have ended; a terminal shows their progress meanwhile."""
    with moving_lines(console) as lines:
        while True:
            runs = [read_run_state(folder) for folder in folders]
            running = [run for run in runs if run.standing is Standing.RUNNING]
            shown: list[str] = []
            for run in running:
                if run.record:
                    shown += named_lines(run.record, time.time())
            redraw(lines, shown)
            if not running:
                return runs
            time.sleep(1)
