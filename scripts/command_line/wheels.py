"""`megabuild wheels`: makes wheels of a config's packages, for pip, uv and poetry."""

from __future__ import annotations

import os
import time

import click

from command_line.options import GroupedCommand, json_option, option, output_option
from command_line.root import is_checkout, output_folder, repository
from groundwork.result import Result

EXAMPLES = """
{prog} linux_64_cpu_debian                torch and the extensions
{prog} linux_64_cpu_debian torch -p 3.12  one of them
{prog} linux_64_cpu_wheel torch_scatter   one extension, for upstream's torch
"""
WHAT = "Select"


@click.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument("config")
@click.argument("packages", metavar="[PACKAGE]...", nargs=-1)
@option(WHAT, "--python", "-p", "pythons", multiple=True, metavar="X.Y",
        help="Only this Python, repeatable.  [default: all]")  # fmt: skip
@output_option
@json_option
def wheels(config: str, packages: tuple[str, ...], pythons: tuple[str, ...], output: str | None) -> Result:
    """Make wheels of CONFIG's packages, and an index of them for pip, uv and poetry.

    CONFIG is a folder of output/packages. A compiled PyTorch becomes torch with all libraries it links to, except
    NVIDIA's, which come from NVIDIA's wheels. Extensions become wheels for the PyTorch they were compiled for. The
    index keeps earlier wheels while their packages are published.
    """
    from command_line.progress_display import Screen
    from conda_wheels.make_wheels import Request, make
    from conda_wheels.wheels_report import result
    from groundwork import in_use
    from groundwork.files import cache_folder
    from megabuild.plan.source_date import source_date

    began, folder, cache = time.monotonic(), output_folder(output), cache_folder(os.environ)
    date = source_date(repository() if is_checkout() else folder, os.environ)
    request = Request(output=folder, config=config, pythons=pythons, names=packages, cache=cache, date=date)
    with Screen() as screen, in_use.shared_lock(cache):
        index = make(request, screen.note)
    return result(index, time.monotonic() - began)
