"""`megabuild wheels`: makes wheels of a config's packages, for pip, uv and poetry."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from command_line.options import builds_folder, json_option
from command_line.parameters import command
from command_line.root import output_folder, repository
from groundwork.checkout import is_checkout
from groundwork.option_fields import argument, repeatable
from groundwork.result import Result

EXAMPLES = """
{prog} linux_64_cpu_debian                torch and the extensions
{prog} linux_64_cpu_debian torch -p 3.12  one of them
{prog} linux_64_cpu_wheel torch_scatter   one extension, for upstream's torch
"""


@dataclass(frozen=True, kw_only=True)
class WheelsOptions:
    """The options of the command."""

    config: str = argument()
    packages: tuple[str, ...] = argument("[PACKAGE]...", required=False)
    pythons: tuple[str, ...] = repeatable(
        "Select", "--python", "-p", metavar="X.Y",
        help="Only this Python, repeatable.  [default: all]",
    )  # fmt: skip
    output: str | None = builds_folder()


@command(WheelsOptions, examples=EXAMPLES)
@json_option
def wheels(options: WheelsOptions) -> Result:
    """Make wheels of CONFIG's packages, and an index of them for pip, uv and poetry.

    CONFIG is a folder of output/packages. A compiled PyTorch becomes torch with all libraries it links to, except
    NVIDIA's, which come from NVIDIA's wheels. Extensions become wheels for the PyTorch they were compiled for. The
    index keeps earlier wheels while their packages are published.
    """
    from command_line.progress_display import Screen
    from conda_wheels.make_wheels import Request, make
    from conda_wheels.wheels_report import result
    from groundwork import in_use
    from groundwork.user_folders import cache_folder
    from megabuild.plan.source_date import source_date

    began = time.monotonic()
    folder = output_folder(options.output)
    cache = cache_folder(os.environ)
    dated = folder
    if is_checkout():
        dated = repository()
    request = Request(
        output=folder,
        config=options.config,
        pythons=options.pythons,
        names=options.packages,
        cache=cache,
        date=source_date(dated, os.environ),
    )
    with Screen() as screen, in_use.shared_lock(cache):
        index = make(request, screen.note)
    return result(index, time.monotonic() - began)
