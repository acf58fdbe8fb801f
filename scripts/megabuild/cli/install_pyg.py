"""`megabuild install-pyg`, and `scripts/install-pyg`: the extensions for an environment that exists already."""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime, timezone
from pathlib import Path

import click
from click.shell_completion import CompletionItem
from packaging.version import InvalidVersion, Version
from rich.console import Console

from megabuild.cli.exits import Invocation, run
from megabuild.cli.install_pyg_views import (
    document,
    environment_lines,
    plan_document,
    plan_lines,
    result_lines,
)
from megabuild.cli.options import GroupedCommand, option
from megabuild.cli.reporters import reporter
from megabuild.cli.root import repository
from megabuild.cli.text import Signs
from megabuild.configs.config import available, load
from megabuild.configs.overrides import cuda_archs
from megabuild.errors import PreflightError, UsageError
from megabuild.extension_table import EXTENSIONS, Release, find, release
from megabuild.extensions.install.deciding import Decider, Request, archs_for
from megabuild.extensions.install.installer import Installer, jobs_for
from megabuild.extensions.install.user_environment import interpreter, look
from megabuild.extensions.pyg_index import Index
from megabuild.files import cache_folder, writable
from megabuild.network.index import PYG_INDEX
from megabuild.resources.machine import measure

EXAMPLES = """
{prog}                        all, into the active environment
{prog} -p ~/venv torch_scatter torch_sparse
{prog} pyg-lib --pyg source --arch-list "9.0;12.0"
{prog} --plan                 what would be done
{prog} --pyg-index ./index --pyg-sources ./sources   no network
"""
WHERE = "Where to"
WHAT = "Wheels and sources"
HOW = "How they are compiled"


def _extension_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    names = (extension.name for extension in EXTENSIONS)
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command(
    "install-pyg",
    cls=GroupedCommand,
    examples=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("extensions", nargs=-1, metavar="[EXTENSION[==VERSION]]...", shell_complete=_extension_names)
@option(WHERE, "--python", "-p", "python", metavar="PATH",
        help="An interpreter or an environment's folder; the active environment without it.")  # fmt: skip
@option(WHERE, "--wheel-dir", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
        help="Copy the wheels there that were installed, to take them away.")  # fmt: skip
@option(WHERE, "--plan", is_flag=True, help="Say what would be done, and change nothing.")
@option(WHERE, "--force", is_flag=True, help="Install again what is there and fits.")
@option(
    WHAT,
    "--pyg",
    "mode",
    type=click.Choice(["auto", "source", "prebuilt"]),
    default="auto",
    show_default=True,
    help="auto: a wheel where one fits and stands a look inside, else compile.",
)
@option(
    WHAT,
    "--pyg-index",
    "index",
    metavar="URL|DIR",
    default=PYG_INDEX,
    show_default=True,
    help="Where wheels are looked for.",
)
@option(
    WHAT,
    "--pyg-sources",
    "sources",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Archives of sources (and wheels of build tools), looked at before pip's index.",
)
@option(HOW, "--arch-list", metavar="LIST",
        help='CUDA archs: "9.0;12.0+PTX". Without it those of the GPUs here, else PyTorch\'s own.')  # fmt: skip
@option(HOW, "--jobs", "-j", type=click.IntRange(min=1), help="Compile jobs; else what fits into memory.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output, nothing else.")
@click.pass_context
def install_pyg(
    context: click.Context,
    *,
    extensions: tuple[str, ...],
    python: str | None,
    wheel_dir: Path | None,
    plan: bool,
    force: bool,
    mode: str,
    index: str,
    sources: Path | None,
    arch_list: str | None,
    jobs: int | None,
    as_json: bool,
) -> int:
    """Install PyTorch Geometric's extensions beside an installed PyTorch.

    Each extension on its own: what was compiled here earlier, or a wheel, else its sources are compiled for this very
    PyTorch. What was installed is looked into and imported; a CPU build beside a CUDA PyTorch does not pass, nor does
    one that was there before.
    """
    invocation: Invocation = context.obj
    invocation.json = as_json
    archs = cuda_archs(arch_list or "")
    requests = _requests(extensions)
    environment = look(interpreter(python, os.environ))
    jobs_found = jobs_for(environment, measure(), jobs)
    archs_found = archs_for(environment, archs)
    click.echo("\n".join(environment_lines(environment, archs_found, jobs_found)), err=True)
    from megabuild.extensions.contents import look_inside  # not before: other commands need none of it

    with reporter(Console(stderr=True, soft_wrap=True)) as shown:
        decider = Decider(
            environment=environment,
            mode=mode,
            index=Index(index),
            sources=sources.absolute() if sources else None,
            cache=cache_folder(os.environ),
            archs=archs,
            force=force,
            judge=look_inside,
            report=(lambda sentence: None) if plan else shown.tell,
        )
        if plan:
            steps = tuple(decider.steps(requests, fetch=False))
        else:
            installer = Installer(
                decider=decider,
                wrapper=repository() / "recipe" / "pyg" / "common" / "build_wheel.py",
                logs=_logs(invocation.log_folder, decider.cache),
                wheel_dir=wheel_dir.absolute() if wheel_dir else None,
                jobs=jobs_found.count,
                progress=shown,
            )
            steps = installer.install(requests)
    signs = Signs.of(sys.stdout)
    if as_json:
        made = plan_document(environment, steps) if plan else document(environment, steps)
        click.echo(json.dumps(made, indent=1))
    else:
        lines = plan_lines(steps, signs) if plan else result_lines(steps, signs, wheel_dir)
        click.echo("\n".join(["", *lines]))
    return next((step.error.exit_code for step in steps if step.error), 0)


def _logs(usual: Path, cache: Path) -> Path:
    """Return a folder for this run's logs: in the cache where the repository lies on a disk that is read-only."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    try:
        writable(usual, "")
    except PreflightError:
        usual = cache / "logs"
    return usual / f"install-pyg-{stamp}-{os.getpid()}"


def main() -> None:
    """Run the command line and end the process."""
    run(install_pyg, name="install-pyg", invocation=Invocation(log_folder=repository() / "output" / "logs"))


def _requests(words: tuple[str, ...]) -> tuple[Request, ...]:
    """Every extension once, in the order in which they need each other."""
    asked: dict[str, str] = {}
    for word in words or tuple(extension.name for extension in EXTENSIONS):
        name, _, version = word.partition("==")
        try:
            asked[find(name).name] = str(Version(version)) if version else ""
        except InvalidVersion as error:
            raise UsageError(f"'{version}' is no version", f"write it like {name}==2.1.2") from error
    root = repository()
    variant = load(root, available(root)[0]).variant  # the extensions' versions are the same in every config
    requests = []
    for extension in EXTENSIONS:
        if extension.name in asked:
            known, version = release(extension, variant), asked[extension.name]
            if version not in ("", known.version):  # the matrix knows nothing of that one
                known = Release(name=extension.name, version=version)
            requests.append(Request(extension=extension, version=version, release=known))
    return tuple(requests)
