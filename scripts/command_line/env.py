"""`megabuild env`: makes environments from built packages, without conda."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from command_line.options import CommandGroup, GroupedCommand, option, output_option
from command_line.root import output_folder
from groundwork.channel import Channel
from groundwork.result import Result
from groundwork.text import Sign, counted, display, size

EXAMPLES = """
{prog} ./env pytorch_scatter --from linux_64_cpu_wheel
{prog} ./env pytorch-gpu pytorch_sparse --from linux_64_cuda132_wheel -p 3.12
{prog} ./env 'pytorch 2.13.*' ipython --from linux_64_cuda130 -c conda-forge
"""
WHAT = "Contents"


@click.group(cls=CommandGroup)
def env() -> None:
    """Make environments from built packages, without conda."""


@env.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("packages", metavar="PACKAGE...", nargs=-1, required=True)
@option(WHAT, "--from", "config", metavar="CONFIG", required=True,
        help="Folder of output/packages: a config, with -rehearsal or the version of --torch.")  # fmt: skip
@option(WHAT, "--python", "-p", metavar="X.Y", help="Python version.  [default: the newest that fits]")
@option(WHAT, "--channel", "-c", "channels", multiple=True, metavar="URL|NAME|DIR",
        help="Further channel after the built one, repeatable.")  # fmt: skip
@output_option
def create(
    folder: Path,
    packages: tuple[str, ...],
    config: str,
    python: str | None,
    channels: tuple[str, ...],
    output: str | None,
) -> Result:
    """Install PACKAGEs of a build and their dependencies into DIR, a new or empty folder.

    Without an NVIDIA driver, set CONDA_OVERRIDE_CUDA=X.Y to install packages for CUDA.
    """
    from command_line.progress_display import Screen
    from groundwork import in_use
    from groundwork.files import cache_folder
    from groundwork.network.client import channel_url
    from megabuild import environments

    channel = environments.find_channel(output_folder(output), config)
    environments.check_folder(folder)
    specs = list(packages)
    if python:
        free_threaded = f" *_cp{python.replace('.', '')}" if python.endswith("t") else ""
        specs.append(f"python {python.removesuffix('t')}.*{free_threaded}")
    more = []
    for name in channels:
        folder_of_channel = Path(name).absolute()
        if folder_of_channel.is_dir():
            more.append(Channel.of_folder(folder_of_channel))
        else:
            more.append(Channel.parse(channel_url(name)))
    cache = cache_folder(os.environ)
    with Screen(what="solving the environment"), in_use.shared_lock(cache):
        solution = environments.solve(channel, specs, more=more)
    count = counted(len(solution.records), "package")
    with Screen() as screen, in_use.shared_lock(cache):
        screen.note(f"{count}, {size(solution.size)} of files")
        environments.create(folder, solution, cache=cache, report=screen.note)
    path = shlex.quote(display(folder.absolute()))
    lines = [f"{Sign.done} {count}", f"to activate it, run: . {path}/{environments.ACTIVATE}"]
    if (folder / "bin" / "python").exists():  # libtorch needs no Python
        lines.append(f"or run: {path}/bin/python")
    return Result(lines=lines)
