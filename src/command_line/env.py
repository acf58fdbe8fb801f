"""`megabuild env`: makes environments from built packages, without conda."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

import click

from command_line.options import CommandGroup, builds_folder
from command_line.parameters import command
from command_line.root import output_folder
from groundwork.channel import Channel
from groundwork.option_fields import argument, option, repeatable
from groundwork.result import Result
from groundwork.text import Sign, counted, display, size

EXAMPLES = """
{prog} ./env pytorch_scatter --from linux_64_cpu_wheel
{prog} ./env pytorch-gpu pytorch_sparse --from linux_64_cuda132_wheel -p 3.12
{prog} ./env 'pytorch 2.13.*' ipython --from linux_64_cuda130 -c conda-forge
"""
CONTENTS = "Contents"


@click.group(cls=CommandGroup)
def env() -> None:
    """Make environments from built packages, without conda."""


@dataclass(frozen=True, kw_only=True)
class CreateOptions:
    """The options of `env create`."""

    folder: Path = argument("DIR")
    packages: tuple[str, ...] = argument("PACKAGE...")
    config: str = option(
        CONTENTS, "--from", metavar="CONFIG", required=True,
        help="Folder of output/packages: a config, with -rehearsal or the version of --torch.",
    )  # fmt: skip
    python: str | None = option(
        CONTENTS, "--python", "-p", metavar="X.Y", help="Python version.  [default: the newest that fits]"
    )
    channels: tuple[str, ...] = repeatable(
        CONTENTS, "--channel", "-c", metavar="URL|NAME|DIR",
        help="Further channel after the built one, repeatable.",
    )  # fmt: skip
    output: str | None = builds_folder()


@command(CreateOptions, examples=EXAMPLES)
def create(options: CreateOptions) -> Result:
    """Install PACKAGEs of a build and their dependencies into DIR, a new or empty folder.

    Without an NVIDIA driver, set CONDA_OVERRIDE_CUDA=X.Y to install packages for CUDA.
    """
    from command_line.progress_display import Screen
    from groundwork import in_use
    from groundwork.user_folders import cache_folder
    from megabuild import environments
    from megabuild.store import published

    channel = environments.find_channel(output_folder(options.output), options.config)
    environments.check_folder(options.folder)
    specs = list(options.packages)
    if options.python:
        specs.append(_python_spec(options.python))
    more = [_channel(name) for name in options.channels]
    cache = cache_folder(os.environ)
    with Screen(what="solving the environment"), in_use.shared_lock(cache):
        solution = environments.solve(channel, specs, more=more)
    count = counted(len(solution.records), "package")
    with Screen() as screen, in_use.shared_lock(cache):
        screen.note(f"{count}, {size(solution.size)} of files")
        environments.create(options.folder, solution, cache=cache, report=screen.note)
    path = shlex.quote(display(options.folder.absolute()))
    lines = [f"{Sign.done} {count}", f"to activate it, run: . {path}/{environments.ACTIVATE}"]
    if (options.folder / "bin" / "python").exists():  # libtorch needs no Python
        lines.append(f"or run: {path}/bin/python")
    names = [record.file_name for record in solution.records]
    lines += published.find_missing_tests(channel, names).lines
    return Result(lines=lines)


def _python_spec(version: str) -> str:
    """Return the requirement of a Python; ``3.14t`` is the free-threaded one."""
    spec = f"python {version.removesuffix('t')}.*"
    if version.endswith("t"):
        return f"{spec} *_cp{version.replace('.', '')}"
    return spec


def _channel(name: str) -> Channel:
    """Return a channel that a user names: a folder, or a URL."""
    from groundwork.network.client import channel_url

    folder = Path(name).absolute()
    if folder.is_dir():
        return Channel.of_folder(folder)
    return Channel.parse(channel_url(name))


env.add_command(create)
