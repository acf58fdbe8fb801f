"""`megabuild verify-gpu`: what only a GPU can show."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from megabuild.cli.text import Signs
from megabuild.errors import NoGpuError, VerdictError


@click.command("verify-gpu")
@click.argument("environment", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.pass_context
def verify_gpu(context: click.Context, environment: Path, as_json: bool) -> None:
    """Try an environment's torch and extensions on this machine's GPUs.

    Compares the versions of driver and torch, each GPU with the code that every library carries, and one operation of
    torch and of each installed extension on the GPU with the same on the CPU. Exit code 14: something is wrong;
    15: there is no GPU here, so nothing was tried.
    """
    from megabuild.cli.verdict_views import gpu_lines
    from megabuild.verify.gpu import examine

    context.obj.json = as_json
    report = examine(environment)
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=1))
    else:
        click.echo("\n".join(gpu_lines(report, Signs.of(sys.stdout))))
    if report.present:
        context.exit(0 if report.ok else VerdictError.exit_code)
    if as_json:
        context.exit(NoGpuError.exit_code)
    raise NoGpuError(
        f"no GPU was tried: {report.no_gpu}",
        "run this on a machine with an NVIDIA GPU; `megabuild verify` tells what can be told without one",
    )
