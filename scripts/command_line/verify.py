"""`megabuild verify` and `verify-gpu`: what packages, wheels or an environment contain, and whether a GPU runs it."""

from __future__ import annotations

from pathlib import Path

import click

from command_line.options import json_option
from groundwork.errors import UsageError
from groundwork.names import cuda_archs
from groundwork.result import Result


@click.command()
@click.argument(
    "subjects", nargs=-1, required=True, metavar="PACKAGE... | ENVIRONMENT", type=click.Path(path_type=Path)
)
@click.option("--beside", metavar="ENVIRONMENT", type=click.Path(path_type=Path),
              help="The environment whose torch they must fit.")  # fmt: skip
@click.option("--accelerator", default="", metavar="cpu|cudaNNN", help="What they must be built for.")
@click.option("--arch-list", "archs", default="", metavar="LIST",
              help='GPUs that must run them: "9.0;12.0" or sm_120; +PTX: with PTX of it.')  # fmt: skip
@json_option()
def verify(subjects: tuple[Path, ...], beside: Path | None, accelerator: str, archs: str) -> Result:
    """Read built packages, wheels or an environment, without a GPU.

    Says of every library which GPUs it has code for, what it links to, and against which torch, CUDA and Python it
    was built. What lies in a published channel must be what was published (exit code 6). Exit code 14: something is not
    what is expected, or does not fit the torch beside it; 19: nothing is wrong as far as can be told, but a question
    cannot be answered.
    """
    from gpu_tools.verify import report
    from gpu_tools.verify.check import verify as check
    from gpu_tools.verify.expectation import Expectation

    expect = Expectation(accelerator=accelerator, archs=cuda_archs(archs), exact_archs=False)
    if expect.archs and expect.cuda is False:
        raise UsageError("--arch-list asks for CUDA, --accelerator for the CPU", "leave one of the two out")
    for subject in subjects:
        if subject.suffix == ".conda":  # what builds keeps records of these, and takes a moment to import
            from megabuild.plan import published

            published.check(subject)
    return report.verdict_result([check(subject, beside=beside, expect=expect) for subject in subjects])


@click.command("verify-gpu")
@click.argument("environment", type=click.Path(path_type=Path))
@json_option()
def verify_gpu(environment: Path) -> Result:
    """Try an environment's torch and extensions on this machine's GPUs.

    Compares the versions of driver and torch, each GPU with the code that every library carries, and one operation of
    torch and of each installed extension on the GPU with the same on the CPU. Exit code 14: something is wrong;
    19: there is no GPU here, so nothing was tried.
    """
    from gpu_tools.verify import report
    from gpu_tools.verify.gpu import examine

    return report.gpu_result(examine(environment))
