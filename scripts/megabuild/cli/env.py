"""`megabuild env`: environments of what was built, without conda; and how conda and its like make them."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from megabuild.cli.exits import Invocation
from megabuild.cli.options import GroupedCommand, option
from megabuild.cli.root import display, repository
from megabuild.cli.text import Signs, duration, size, table

if TYPE_CHECKING:  # the solver takes a moment to import
    from megabuild.using.prefix import Solution

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
def create(context: click.Context, /, **given: Any) -> int:
    """Make an environment in DIR with PACKAGEs of a build, and what they need; no conda takes part.

    DIR must be new or empty, or have been made so: then it is brought up to date. Where the machine has no GPU that
    the packages ask for, CONDA_OVERRIDE_CUDA stands in.
    """
    from megabuild.cli.reporters import reporter
    from megabuild.files import cache_folder
    from megabuild.network.channels import channel_url
    from megabuild.using import install, prefix

    invocation: Invocation = context.obj
    invocation.json = given["as_json"]
    folder, began = given["folder"], time.monotonic()
    python = (
        [f"python {given['python'].removesuffix('t')}.*{_abi(given['python'])}"] if given["python"] else []
    )
    wanted = prefix.Wanted(
        specs=(*given["packages"], *python),
        published=prefix.find(Path(given["output"] or repository() / "output").absolute(), given["config"]),
        more=tuple(
            Path(one).absolute() if Path(one).is_dir() else channel_url(one) for one in given["channels"]
        ),
    )
    install.check_place(folder)
    solution = prefix.solve(wanted)
    console = Console(stderr=invocation.json, soft_wrap=True)
    document = _document(folder, solution)
    if given["plan_only"]:
        if invocation.json:
            invocation.show(document)
        else:
            console.out("\n".join(_lines(solution)), highlight=False)
        return 0
    count = len(solution.records)
    with reporter(console) as shown:
        shown.note(f"{count} packages, {size(solution.size)} of files")
        install.create(folder, wanted, solution, cache=cache_folder(os.environ), report=shown.note)
    if invocation.json:
        invocation.show(document)
        return 0
    place, signs = shlex.quote(display(folder.absolute())), Signs.of(console.file)
    console.out(
        f"{signs.done} {count} packages in {duration(time.monotonic() - began)}\n"
        f"activate it:  . {place}/{install.ACTIVATE}\n"
        f"or just run:  {place}/bin/python",
        highlight=False,
    )
    return 0


def _abi(python: str) -> str:
    return f" *_cp{python.replace('.', '')}" if python.endswith("t") else ""


def _lines(solution: Solution) -> list[str]:
    rows = [
        (one.name.normalized, str(one.version), str(one.build), size(one.size or 0))
        for one in solution.records
    ]
    channels = [display(one) if isinstance(one, Path) else one for one in solution.channels]
    return [
        *table(("package", "version", "build", "size"), rows, right=frozenset({3})),
        "",
        f"{len(rows)} packages, {size(solution.size)} of files",
        *(f"from {channel}" for channel in channels),
    ]


def _document(folder: Path, solution: Solution) -> dict[str, Any]:
    from megabuild.plan.solving import url
    from megabuild.using.install import ACTIVATE

    place = folder.absolute()
    return {
        "environment": str(place),
        "activate": str(place / ACTIVATE),
        "channels": [url(channel) for channel in solution.channels],
        "bytes": solution.size,
        "packages": [
            {
                "name": one.name.normalized,
                "version": str(one.version),
                "build_string": str(one.build),
                "url": one.url,
                "sha256": one.sha256.hex() if one.sha256 else "",
            }
            for one in solution.records
        ],
    }
