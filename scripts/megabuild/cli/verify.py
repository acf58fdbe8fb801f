"""`megabuild verify`: what built packages, wheels or an environment really contain."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import click

from megabuild.cli.options import GroupedOption
from megabuild.cli.text import Signs
from megabuild.errors import VerdictError


@click.command()
@click.argument(
    "subjects", nargs=-1, required=True, metavar="PACKAGE... | ENVIRONMENT", type=click.Path(path_type=Path)
)
@click.option("--beside", metavar="ENVIRONMENT", type=click.Path(path_type=Path),
              help="The environment whose torch they must fit.")  # fmt: skip
@click.option("--accelerator", default="", metavar="cpu|cudaNNN", help="What they must be built for.")
@click.option(
    "--arch-list",
    "--archs",
    "archs",
    cls=GroupedOption,
    former=["--archs"],
    default="",
    metavar="LIST",
    help='CUDA architectures they must have: "9.0;12.0+PTX".',
)
@click.option("--python", metavar="X.Y", help="The Python they must be built for.")
@click.option("--torch", "torch_version", metavar="VERSION", help="The torch they must be built for.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.pass_context
def verify(
    context: click.Context,
    subjects: tuple[Path, ...],
    beside: Path | None,
    accelerator: str,
    archs: str,
    python: str | None,
    torch_version: str | None,
    as_json: bool,
) -> None:
    """Read built packages, wheels or an environment, without a GPU.

    Says of every library which GPUs it has code for, what it links to, and against which torch, CUDA and Python it
    was built; fails with exit code 14 where that is not what is expected, or does not fit the torch beside it.
    """
    from megabuild.cli.verdict_views import verdict_lines
    from megabuild.verify.check import verify as check
    from megabuild.verify.expected import Expectation

    context.obj.json = as_json
    expect = Expectation(
        accelerator=accelerator,
        archs=tuple(arch for arch in re.split(r"[;, ]", archs) if arch),
        python=python,
        torch_version=torch_version,
    )
    verdicts = [check(subject, beside=beside, expect=expect) for subject in subjects]
    if as_json:
        click.echo(json.dumps([verdict.to_json() for verdict in verdicts], indent=1))
    else:
        signs = Signs.of(sys.stdout)
        click.echo("\n\n".join("\n".join(verdict_lines(verdict, signs)) for verdict in verdicts))
    if not all(verdict.ok for verdict in verdicts):
        context.exit(VerdictError.exit_code)
