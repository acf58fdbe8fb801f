"""`megabuild install-pyg`, and `scripts/install-pyg`: the extensions for an environment that exists already."""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import datetime, timezone
from pathlib import Path

import click
from packaging.version import InvalidVersion, Version

from megabuild.cli.exits import Invocation, run
from megabuild.cli.install_views import document, environment_lines, result_lines
from megabuild.cli.options import GroupedCommand, option
from megabuild.cli.root import repository
from megabuild.cli.text import Signs
from megabuild.configs.config import available, load
from megabuild.errors import UsageError
from megabuild.extensions.index import INDEX
from megabuild.extensions.install.installer import Installer, archs_for, jobs_for
from megabuild.extensions.install.rows import Options, Request
from megabuild.extensions.install.user_environment import interpreter, look
from megabuild.extensions.sdist import Sdist
from megabuild.extensions.table import EXTENSIONS, find, release
from megabuild.files import cache_folder
from megabuild.resources.machine import measure

EXAMPLES = """
{prog}                        all, into the active environment
{prog} -p ~/venv torch_scatter torch_sparse
{prog} pyg-lib --pyg source --arch-list "9.0;12.0"
{prog} --pyg-index ./index --pyg-sources ./sources   no network
"""
WHERE = "Where to"
WHAT = "Wheels and sources"
HOW = "How they are compiled"
_ARCH = re.compile(r"\d+\.\d[af]?(?:\+PTX)?")


@click.command(
    "install-pyg",
    cls=GroupedCommand,
    examples=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("extensions", nargs=-1, metavar="[EXTENSION[==VERSION]]...")
@option(
    WHERE,
    "--python",
    "-p",
    "python",
    metavar="PATH",
    help="An interpreter or an environment's folder; the active environment without it.",
)
@option(WHERE, "--force", is_flag=True, help="Install again what is there and fits.")
@option(
    WHAT,
    "--pyg",
    "--source",
    "mode",
    former=["--source"],
    type=click.Choice(["auto", "source", "prebuilt"]),
    default="auto",
    show_default=True,
    help="auto: a wheel where one fits and stands a look inside, else compile.",
)
@option(
    WHAT,
    "--pyg-index",
    "--index",
    "index",
    former=["--index"],
    metavar="URL|DIR",
    default=INDEX,
    show_default=True,
    help="Where wheels are looked for.",
)
@option(
    WHAT,
    "--pyg-sources",
    "--sdists",
    "sources",
    former=["--sdists"],
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Archives of sources (and wheels of build tools), looked at before pip's index.",
)
@option(
    HOW,
    "--arch-list",
    metavar="LIST",
    help='CUDA archs: "9.0;12.0+PTX". Without it those of the GPUs here, else PyTorch\'s own.',
)
@option(HOW, "--jobs", "-j", type=click.IntRange(min=1), help="Compile jobs; else what fits into memory.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output, nothing else.")
@click.pass_context
def install_pyg(
    context: click.Context,
    *,
    extensions: tuple[str, ...],
    python: str | None,
    force: bool,
    mode: str,
    index: str,
    sources: Path | None,
    arch_list: str | None,
    jobs: int | None,
    as_json: bool,
) -> int:
    """Install PyTorch Geometric's extensions beside an installed PyTorch.

    Each extension on its own: wheels first, else its sources are compiled for this very PyTorch. What was installed is
    looked into and imported; a CPU build beside a CUDA PyTorch does not pass, nor does one that was there before.
    """
    invocation: Invocation = context.obj
    invocation.json = as_json
    archs = _archs(arch_list)
    requests = _requests(extensions)
    environment = look(interpreter(python, os.environ))
    jobs_found = jobs_for(environment, measure(), jobs)
    _say(environment_lines(environment, archs_for(environment, archs), jobs_found))
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    options = Options(
        mode=mode,
        index=index,
        sources=sources.absolute() if sources else None,
        cache=cache_folder(os.environ),
        wrapper=repository() / "recipe" / "pyg" / "common" / "build_wheel.py",
        logs=invocation.log_folder / f"install-pyg-{stamp}-{os.getpid()}",
        archs=archs,
        force=force,
    )
    from megabuild.extensions.contents import look_inside  # not before: other commands need none of it

    installer = Installer(
        environment,
        options,
        judge=look_inside,
        jobs=jobs_found.count,
        report=lambda sentence: _say([sentence]),
    )
    rows = installer.install(requests)
    if as_json:
        click.echo(json.dumps(document(environment, rows), indent=1))
    else:
        click.echo("\n".join(["", *result_lines(rows, Signs.of(sys.stdout))]))
    return next((row.exit_code for row in rows if not row.ok), 0)


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
            archive = Sdist(
                name=extension.name,
                version=version or known.version,
                sha256=known.sha256 if version in ("", known.version) else "",
            )
            requests.append(Request(extension=extension, version=version, source=archive))
    return tuple(requests)


def _archs(text: str | None) -> tuple[str, ...]:
    archs = tuple(part for part in re.split(r"[;,\s]+", text or "") if part)
    wrong = next((arch for arch in archs if not _ARCH.fullmatch(arch)), None)
    if wrong is not None:
        raise UsageError(f"'{wrong}' is no CUDA arch", 'write them like "9.0;12.0+PTX"')
    return archs


def _say(lines: list[str]) -> None:
    click.echo("\n".join(lines), err=True)
