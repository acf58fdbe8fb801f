"""`megabuild install-pyg` and `scripts/install-pyg`: install the extensions into an existing environment."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from command_line.options import json_option, version_option
from command_line.parameters import command
from command_line.progress_display import Screen
from command_line.run_command import Invocation, print_lines, run
from groundwork import in_use
from groundwork.errors import UnknownError
from groundwork.jobs import bytes_per_compile, compile_jobs
from groundwork.machine import measure
from groundwork.names import cuda_archs
from groundwork.network.index import PYG_INDEX
from groundwork.option_fields import PathRule, argument, option, switch
from groundwork.result import Result
from groundwork.user_folders import cache_folder

EXAMPLES = """
{prog}                        all extensions, into the active environment
{prog} pyg-lib                only the one that upstream continues
{prog} -p ~/venv torch_scatter torch_sparse
{prog} pyg-lib --pyg source --arch-list "9.0;12.0"
{prog} --plan                 show the plan
{prog} --pyg-index ./index --pyg-sources ./sources   without a network
"""
ENVIRONMENT = "Environment"
SOURCES = "Wheels and sources"
COMPILE = "Compile"
_NATIVE = "native"


@dataclass(frozen=True, kw_only=True)
class InstallPygOptions:
    """The options of the command."""

    extensions: tuple[str, ...] = argument("[EXTENSION[==VERSION]]...", required=False)
    python: str | None = option(
        ENVIRONMENT, "--python", "-p", metavar="PATH",
        help="Interpreter or folder of the environment.  [default: the active one]",
    )  # fmt: skip
    only_plan: bool = switch(
        ENVIRONMENT, "--plan", help="Show the plan and try the compilers; install nothing."
    )
    mode: str = option(
        SOURCES, "--pyg", choices=("auto", "source", "prebuilt"), default="auto", show_default=True,
        help="auto: a verified wheel of the index, else compile. source: compile. prebuilt: wheels only.",
    )  # fmt: skip
    index: str = option(
        SOURCES, "--pyg-index", metavar="URL|DIR", default=PYG_INDEX, show_default=True, help="Index of wheels."
    )  # fmt: skip
    sources: Path | None = option(
        SOURCES, "--pyg-sources", metavar="DIR", path_rule=PathRule.EXISTING_FOLDER, convert=Path.absolute,
        help="Source archives and wheels of build tools, used before pip's index.",
    )  # fmt: skip
    arch_list: str | None = option(
        COMPILE, "--arch-list", metavar="LIST|native",
        help='CUDA architectures, such as "9.0;12.0+PTX".  [default: the GPUs here, else PyTorch\'s]',
    )  # fmt: skip
    jobs: int | None = option(
        COMPILE, "--jobs", "-j", metavar="N", at_least=1, help="Compile jobs.  [default: CPU_COUNT, or by memory]"
    )  # fmt: skip


@command(InstallPygOptions, name="install-pyg", examples=EXAMPLES)
@json_option
@version_option
@click.pass_obj
def install_pyg(invocation: Invocation, options: InstallPygOptions) -> Result:
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

    requests = parse_requests(options.extensions, matrix())
    native = options.arch_list == _NATIVE
    archs: tuple[str, ...] = ()
    if options.arch_list and not native:
        archs = cuda_archs(options.arch_list)
    with Screen(what="inspecting the environment"):
        environment = look(interpreter(options.python, os.environ))
    if native and not environment.devices:
        raise UnknownError("--arch-list native: PyTorch sees no GPU", "name architectures: --arch-list 12.0")
    per_job = bytes_per_compile(cuda=environment.cuda_version is not None)
    fitting = compile_jobs(measure(), bytes_per_job=per_job, requested=options.jobs, environ=os.environ)
    compiled_archs = environment.archs(archs)
    lines = environment_lines(environment, compiled_archs, fitting)
    print_lines(lines, sys.stderr)
    with Screen() as shown:
        install_options = InstallOptions(
            environment=environment,
            mode=Mode(options.mode),
            index=PygIndex(options.index),
            sources=options.sources,
            cache=cache_folder(os.environ),
            archs=archs,
            logs=invocation.log_folder,
            jobs=fitting.count,
            report=shown.tell,
            progress=shown.note,
        )
        if options.only_plan:
            plan(requests, install_options)
        else:
            with in_use.shared_lock(install_options.cache):
                install(requests, install_options)
    return install_result(environment, compiled_archs, requests, only_plan=options.only_plan)


def main() -> None:
    """Run the command line, then end the process with its exit code."""
    run(install_pyg, name="install-pyg")
