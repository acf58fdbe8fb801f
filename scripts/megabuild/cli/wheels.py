"""`megabuild wheels`: what a config built, as wheels for pip, uv and poetry."""

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
from megabuild.wording import counted

if TYPE_CHECKING:  # the solver takes a moment to import
    from megabuild.wheels.make import Index

EXAMPLES = """
{prog} linux_64_cpu_debian                torch, and extensions
{prog} linux_64_cpu_debian torch -p 3.12  one of them
{prog} linux_64_cpu_wheel torch_scatter   for upstream's own torch
"""
WHAT = "What becomes a wheel"
_PORT = 8000


@click.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument("config")
@click.argument("packages", metavar="[PACKAGE]...", nargs=-1)
@option(WHAT, "--python", "-p", "pythons", multiple=True, metavar="X.Y",
        help="Only for this Python; may be repeated.")  # fmt: skip
@option(WHAT, "--output", "-o", metavar="DIR", help="The build's.  [default: output/ in the repository]")
@option("Only showing", "--json", "as_json", is_flag=True,
        help="One JSON document on standard output, nothing else.")  # fmt: skip
@click.pass_context
def wheels(context: click.Context, /, **given: Any) -> None:
    """Make wheels of what CONFIG built, and an index of them for pip, uv and poetry.

    CONFIG is what its run was called: linux_64_cpu_debian, linux_64_cpu-rehearsal. A PyTorch that was compiled becomes
    torch, complete with the libraries that it links to, of which NVIDIA's come from NVIDIA's wheels; extensions become
    wheels for the PyTorch that they were compiled for. Wheels of former calls stay in the index while their packages
    are published.
    """
    from megabuild.cli.reporters import reporter
    from megabuild.files import cache_folder
    from megabuild.plan.source_date import source_date
    from megabuild.wheels.make import Request, make

    invocation: Invocation = context.obj
    invocation.json = given["as_json"]
    began = time.monotonic()
    date = source_date(repository(), os.environ)
    request = Request(
        output=Path(given["output"] or repository() / "output").absolute(),
        config=given["config"],
        pythons=given["pythons"],
        names=given["packages"],
        cache=cache_folder(os.environ),
        date=date.seconds,
    )
    console = Console(stderr=invocation.json, soft_wrap=True)
    with reporter(console) as shown:
        if date.note:
            shown.note(f"! {date.note}")
        found = make(request, shown.note)
    lines = _commands(found, request.config)
    if invocation.json:
        invocation.show(_document(found, lines))
        return
    signs = Signs.of(console.file)
    rows = [
        (
            signs.kept if one.kept else signs.done,
            one.wheel.name,
            size(one.wheel.size),
            f"glibc {one.glibc}" if one.glibc else "",
        )
        for one in found.made
    ]
    others = f", beside {counted(found.others, 'other')} in the index" if found.others else ""
    text = [
        *table(("", "wheel", "size", "runs from"), rows, right=frozenset({2})),
        f"{counted(len(rows), 'wheel')}{others}, {duration(time.monotonic() - began)}: {display(found.folder)}",
        "",
        *(f"{program + ':':<8}{line}" for program, line in lines.items()),
    ]
    console.out("\n".join(text), highlight=False)


def _commands(found: Index, config: str) -> dict[str, str]:
    """Return lines that install the latest of what was made, by the program's name; poetry reads no files."""
    newest = found.made[-1].wheel.python
    chosen = {one.wheel.project: one for one in found.made if one.wheel.python in (None, newest)}
    exact = [f"{one.wheel.project}=={one.wheel.version}" for one in chosen.values()]
    place, name = found.folder, config.replace("_", "-")
    served = f"python3 -m http.server {_PORT} --bind 127.0.0.1 --directory {shlex.quote(str(place))}"
    return {
        "pip": shlex.join(["pip", "install", "--extra-index-url", place.as_uri(), *exact]),
        "uv": shlex.join(["uv", "pip", "install", "--index", place.as_uri(), *exact]),
        "poetry": f"{served} & poetry source add --priority explicit {name} http://127.0.0.1:{_PORT}/ && "
        + shlex.join(["poetry", "add", "--source", name, *exact]),
    }


def _document(found: Index, lines: dict[str, str]) -> dict[str, Any]:
    return {
        "index": found.folder.as_uri(),
        "wheels": [
            {
                "file": str(found.folder / one.wheel.place),
                "project": one.wheel.project,
                "version": one.wheel.version,
                "python": one.wheel.python,
                "torch": one.torch_pin,
                "glibc": one.glibc,
                "bytes": one.wheel.size,
                "sha256": one.wheel.sha256,
                "made": not one.kept,
            }
            for one in found.made
        ],
        "others": found.others,
        "use": lines,
    }
