"""`megabuild install-pyg`, and `scripts/install-pyg`: the extensions for an environment that exists already."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click
from packaging.version import InvalidVersion, Version

from megabuild.cli.exits import Invocation, run
from megabuild.cli.options import GroupedCommand, option
from megabuild.cli.root import display, repository
from megabuild.cli.text import Signs, duration, picked, table, wrapped
from megabuild.configs.config import available, load
from megabuild.configs.overrides import cuda_archs
from megabuild.errors import UsageError
from megabuild.extensions.index import INDEX, Index
from megabuild.extensions.install.installer import Installer, Request, Row, archs_for, jobs_for
from megabuild.extensions.install.user_environment import UserEnvironment, interpreter, look
from megabuild.extensions.table import EXTENSIONS, Release, find, release
from megabuild.files import cache_folder
from megabuild.resources.jobs import Jobs
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
_FROM = {"prebuilt": "wheel", "source": "source", "there": "was there"}


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
    archs = cuda_archs(arch_list or "")
    requests = _requests(extensions)
    environment = look(interpreter(python, os.environ))
    jobs_found = jobs_for(environment, measure(), jobs)
    _say(environment_lines(environment, archs_for(environment, archs), jobs_found))
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    from megabuild.extensions.contents import look_inside  # not before: other commands need none of it

    installer = Installer(
        environment=environment,
        mode=mode,
        index=Index(index),
        sources=sources.absolute() if sources else None,
        cache=cache_folder(os.environ),
        wrapper=repository() / "recipe" / "pyg" / "common" / "build_wheel.py",
        logs=invocation.log_folder / f"install-pyg-{stamp}-{os.getpid()}",
        archs=archs,
        force=force,
        jobs=jobs_found.count,
        judge=look_inside,
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
            if version not in ("", known.version):  # the matrix knows nothing of that one
                known = Release(name=extension.name, version=version)
            requests.append(Request(extension=extension, version=version, release=known))
    return tuple(requests)


def _say(lines: list[str]) -> None:
    click.echo("\n".join(lines), err=True)


def environment_lines(environment: UserEnvironment, archs: Sequence[str], jobs: Jobs) -> list[str]:
    """Return what was found, for people."""
    cuda = f"CUDA {environment.cuda_version}" if environment.cuda_version else "CPU"
    lines = [
        f"{display(environment.prefix)}: Python {environment.version}, {environment.platform}",
        f"PyTorch {environment.torch_version}, {cuda}",
    ]
    if archs:
        gpus = "GPUs here: " + ", ".join(environment.devices) if environment.devices else "no GPU here"
        lines += wrapped(f"compiling for {' '.join(archs)} ({gpus})", rest="")
    return [*lines, f"{jobs.count} compile jobs ({jobs.reason})"]


def result_lines(rows: Sequence[Row], signs: Signs) -> list[str]:
    """Return the closing table, and below it why what is not as one would like it."""
    cells = [
        (
            row.extension,
            row.version or signs.dash,
            _FROM.get(row.source, signs.dash),
            duration(row.seconds),
            f"{signs.failed} failed"
            if not row.ok
            else f"{signs.kept if row.source == 'there' else signs.done} verified",
        )
        for row in rows
    ]
    lines = table(("extension", "version", "from", "time", "result"), cells, right=frozenset({3}))
    for row in rows:
        for text in dict.fromkeys((*row.notes, row.error, row.remedy)):
            lines += wrapped(f"{row.extension}: {text}", first="  ", rest="    ") if text else []
    return lines


def document(environment: UserEnvironment, rows: Sequence[Row]) -> dict[str, Any]:
    """Return everything as JSON values."""
    return {
        "environment": {
            "prefix": str(environment.prefix),
            "python": environment.version,
            **picked(environment, "platform torch_version cuda_version tag devices"),
        },
        "extensions": [
            {
                "name": row.extension,
                "ok": row.ok,
                "version": row.version or None,
                "source": row.source or None,
                "notes": list(row.notes),
                "error": row.error or None,
                "remedy": row.remedy or None,
                "exit_code": row.exit_code,
                "seconds": round(row.seconds, 3),
            }
            for row in rows
        ],
        "ok": all(row.ok for row in rows),
    }
