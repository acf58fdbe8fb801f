"""`megabuild install-pyg`, and `scripts/install-pyg`: the extensions for an environment that exists already."""

from __future__ import annotations

import os
from pathlib import Path

import click

from command_line.options import SETTINGS, GroupedCommand, json_option, option, version
from command_line.progress_display import Screen
from command_line.root import log_folder
from command_line.run_command import Invocation, run
from groundwork import in_use
from groundwork.errors import UnknownError
from groundwork.files import cache_folder
from groundwork.machine import measure
from groundwork.names import cuda_archs
from groundwork.network.index import PYG_INDEX
from groundwork.result import Result
from groundwork.text import wrapped
from pyg_extensions.table import EXTENSIONS, describe_retired

EXAMPLES = """
{prog}                        all, into the active environment
{prog} pyg-lib                without what upstream retires
{prog} -p ~/venv torch_scatter torch_sparse
{prog} pyg-lib --pyg source --arch-list "9.0;12.0"
{prog} --plan                 what would be done
{prog} --pyg-index ./index --pyg-sources ./sources   no network
"""
WHERE = "Where to"
WHAT = "Wheels and sources"
HOW = "How they are compiled"


@click.command("install-pyg", cls=GroupedCommand, examples=EXAMPLES, context_settings=SETTINGS)
@click.argument("extensions", nargs=-1, metavar="[EXTENSION[==VERSION]]...")
@option(WHERE, "--python", "-p", "python", metavar="PATH",
        help="An interpreter or an environment's folder; the active environment without it.")  # fmt: skip
@option(WHERE, "--plan", "only_plan", is_flag=True,
        help="Say what would be done, try the compilers, change nothing.")  # fmt: skip
@option(WHAT, "--pyg", "mode", type=click.Choice(["auto", "source", "prebuilt"]), default="auto", show_default=True,
        help="auto: a wheel if one fits and passes a look inside, else compile.")  # fmt: skip
@option(WHAT, "--pyg-index", "index", metavar="URL|DIR", default=PYG_INDEX, show_default=True,
        help="Where wheels are looked for.")  # fmt: skip
@option(WHAT, "--pyg-sources", "sources", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Source archives (and wheels of build tools), taken before pip's index is asked.")  # fmt: skip
@option(HOW, "--arch-list", metavar="LIST|native",
        help='CUDA archs: "9.0;12.0+PTX". native: the GPUs here. Default: those, else PyTorch\'s.')  # fmt: skip
@option(HOW, "--jobs", "-j", type=click.IntRange(min=1), metavar="N",
        help="Compile jobs; without it CPU_COUNT, or what fits into memory.")  # fmt: skip
@json_option()
@version("install-pyg")
@click.pass_context
def install_pyg(
    context: click.Context,
    *,
    extensions: tuple[str, ...],
    python: str | None,
    only_plan: bool,
    mode: str,
    index: str,
    sources: Path | None,
    arch_list: str | None,
    jobs: int | None,
) -> Result:
    """Install PyTorch Geometric's extensions beside an installed PyTorch.

    Each extension on its own: what was compiled here earlier, or a wheel, else its sources are compiled for this very
    PyTorch. What was installed is looked into and imported; a CPU build beside a CUDA PyTorch does not pass, nor does
    one that was there before.
    """
    # not before: other commands need none of it
    from pyg_extensions.install.compile_wheel import choose_jobs
    from pyg_extensions.install.installation import InstallOptions, parse_requests
    from pyg_extensions.install.installer import install, plan
    from pyg_extensions.install.report import environment_lines, install_result
    from pyg_extensions.install.user_environment import interpreter, look
    from pyg_extensions.pyg_index import PygIndex
    from pyg_extensions.table import matrix

    invocation: Invocation = context.obj
    invocation.after_stop = "what was installed or compiled by then stays; run again for the rest"
    requests = parse_requests(extensions, matrix())
    native = arch_list == "native"
    archs = () if native else cuda_archs(arch_list or "")
    environment = look(interpreter(python, os.environ))
    if native and not environment.devices:
        raise UnknownError("PyTorch sees no GPU here", "name those to compile for: --arch-list 12.0")
    fitting = choose_jobs(environment, measure(), jobs)
    lines = environment_lines(environment, environment.archs(archs), fitting)
    lines += [] if extensions else wrapped(describe_retired(EXTENSIONS), rest="")
    click.echo("\n".join(lines), err=True)
    with Screen() as shown:
        options = InstallOptions(
            environment=environment,
            mode=mode,
            index=PygIndex(index),
            sources=sources.absolute() if sources else None,
            cache=cache_folder(os.environ),
            archs=archs,
            logs=invocation.log_folder,
            jobs=fitting.count,
            report=shown.tell,
            progress=shown.count,
        )
        if only_plan:
            plan(requests, options)
        else:
            with in_use.shared_lock(options.cache):
                install(requests, options)
    return install_result(environment, requests, only_plan=only_plan)


def main() -> None:
    """Run the command line and end the process."""
    run(install_pyg, name="install-pyg", invocation=Invocation(log_folder=log_folder()))
