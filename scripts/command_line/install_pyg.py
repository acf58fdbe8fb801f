"""`megabuild install-pyg` and `scripts/install-pyg`: install the extensions into an existing environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from command_line.options import GroupedCommand, json_option, option, version_option
from command_line.progress_display import Screen
from command_line.run_command import Invocation, print_lines, run
from groundwork import in_use
from groundwork.errors import UnknownError
from groundwork.files import cache_folder
from groundwork.jobs import bytes_per_compile, compile_jobs
from groundwork.machine import measure
from groundwork.names import cuda_archs
from groundwork.network.index import PYG_INDEX
from groundwork.result import Result

EXAMPLES = """
{prog}                        all extensions, into the active environment
{prog} pyg-lib                only the one that upstream continues
{prog} -p ~/venv torch_scatter torch_sparse
{prog} pyg-lib --pyg source --arch-list "9.0;12.0"
{prog} --plan                 show the plan
{prog} --pyg-index ./index --pyg-sources ./sources   without a network
"""
WHERE = "Environment"
WHAT = "Wheels and sources"
HOW = "Compile"


@click.command("install-pyg", cls=GroupedCommand, examples=EXAMPLES)
@click.argument("extensions", nargs=-1, metavar="[EXTENSION[==VERSION]]...")
@option(WHERE, "--python", "-p", "python", metavar="PATH",
        help="Interpreter or folder of the environment.  [default: the active one]")  # fmt: skip
@option(WHERE, "--plan", "only_plan", is_flag=True,
        help="Show the plan and try the compilers; install nothing.")  # fmt: skip
@option(WHAT, "--pyg", "mode", type=click.Choice(["auto", "source", "prebuilt"]), default="auto", show_default=True,
        help="auto: a verified wheel of the index, else compile. source: compile. prebuilt: wheels only.")  # fmt: skip
@option(WHAT, "--pyg-index", "index", metavar="URL|DIR", default=PYG_INDEX, show_default=True,
        help="Index of wheels.")  # fmt: skip
@option(WHAT, "--pyg-sources", "sources", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Source archives and wheels of build tools, used before pip's index.")  # fmt: skip
@option(HOW, "--arch-list", metavar="LIST|native",
        help='CUDA architectures, such as "9.0;12.0+PTX".  [default: the GPUs here, else PyTorch\'s]')  # fmt: skip
@option(HOW, "--jobs", "-j", type=click.IntRange(min=1), metavar="N",
        help="Compile jobs.  [default: CPU_COUNT, or by memory]")  # fmt: skip
@json_option
@version_option
@click.pass_obj
def install_pyg(
    invocation: Invocation,
    /,
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
    """Install PyTorch Geometric's extensions next to an installed PyTorch.

    Each extension is a wheel compiled here earlier, a wheel of the index, or compiled for this PyTorch. install-pyg
    inspects and imports installed extensions, and replaces a CPU build next to a CUDA PyTorch.
    """
    # imported late: --help needs none of it
    from pyg_extensions.install.install_report import environment_lines, install_result
    from pyg_extensions.install.installation import InstallOptions, Mode, parse_requests
    from pyg_extensions.install.installer import install, plan
    from pyg_extensions.install.user_environment import interpreter, look
    from pyg_extensions.pyg_index import PygIndex
    from pyg_extensions.table import matrix

    requests = parse_requests(extensions, matrix())
    native = arch_list == "native"
    archs = () if native else cuda_archs(arch_list or "")
    with Screen(what="inspecting the environment"):
        environment = look(interpreter(python, os.environ))
    if native and not environment.devices:
        raise UnknownError("--arch-list native: PyTorch sees no GPU", "name architectures: --arch-list 12.0")
    per_job = bytes_per_compile(cuda=environment.cuda_version is not None)
    fitting = compile_jobs(measure(), bytes_per_job=per_job, requested=jobs, environ=os.environ)
    compiled_archs = environment.archs(archs)
    lines = environment_lines(environment, compiled_archs, fitting)
    print_lines(lines, sys.stderr)
    with Screen() as shown:
        options = InstallOptions(
            environment=environment,
            mode=Mode(mode),
            index=PygIndex(index),
            sources=sources.absolute() if sources else None,
            cache=cache_folder(os.environ),
            archs=archs,
            logs=invocation.log_folder,
            jobs=fitting.count,
            report=shown.tell,
            progress=shown.note,
        )
        if only_plan:
            plan(requests, options)
        else:
            with in_use.shared_lock(options.cache):
                install(requests, options)
    return install_result(environment, compiled_archs, requests, only_plan=only_plan)


def main() -> None:
    """Run the command line, then end the process with its exit code."""
    run(install_pyg, name="install-pyg")
