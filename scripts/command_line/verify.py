"""`megabuild verify` and `verify-gpu`: inspect packages, wheels or an environment, and try it on a GPU."""

from __future__ import annotations

from pathlib import Path

import click

from command_line.options import GroupedCommand, json_option, option
from command_line.progress_display import Screen
from groundwork.errors import UsageError
from groundwork.names import cuda_archs
from groundwork.result import Result

EXAMPLES = """
{prog} ~/venv                      every library of an environment
{prog} ~/venv --arch-list native   fail if a library lacks code for the GPUs here
{prog} torch_scatter-2.1.2-*.whl --beside ~/venv
"""
GPU_EXAMPLES = """
{prog} ~/venv
"""
EXPECTED = "Expect"


@click.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument(
    "subjects", nargs=-1, required=True, metavar="PACKAGE... | ENVIRONMENT", type=click.Path(path_type=Path)
)
@option(EXPECTED, "--beside", metavar="ENVIRONMENT", type=click.Path(path_type=Path),
        help="Environment whose torch the libraries must fit.")  # fmt: skip
@option(EXPECTED, "--accelerator", default="", metavar="cpu|cudaNNN",
        help="Accelerator the libraries must be built for.")  # fmt: skip
@option(EXPECTED, "--arch-list", "archs", default="", metavar="LIST",
        help='GPUs that must run the libraries: "9.0;12.0", sm_120, native; "12.0+PTX" with PTX.')  # fmt: skip
@json_option
def verify(subjects: tuple[Path, ...], beside: Path | None, accelerator: str, archs: str) -> Result:
    """Inspect packages, wheels or an environment, without a GPU.

    Lists for every library its GPU code and the torch, CUDA and Python it was built for. Exit codes: 6 a published
    package has changed; 14 a library is wrong; 19 a question has no answer.
    """
    from gpu_tools.verify import verify_report
    from gpu_tools.verify.check import verify as check
    from gpu_tools.verify.expectation import Expectation
    from gpu_tools.verify.gpu import replace_native

    expect = Expectation(accelerator=accelerator, archs=cuda_archs(replace_native(archs)), exact_archs=False)
    if expect.archs and expect.cuda is False:
        raise UsageError("--arch-list needs CUDA, but --accelerator is cpu", "leave out one of them")
    with Screen(what="inspecting the libraries"):
        for subject in subjects:
            if subject.suffix == ".conda":  # only these have records; imported late, as it takes a moment
                from megabuild.store import published

                published.check(subject)
        verdicts = [check(subject, beside=beside, expect=expect) for subject in subjects]
    return verify_report.verdict_result(verdicts)


@click.command("verify-gpu", cls=GroupedCommand, examples=GPU_EXAMPLES)
@click.argument("environment", type=click.Path(path_type=Path))
@json_option
def verify_gpu(environment: Path) -> Result:
    """Try an environment's torch and extensions on this machine's GPUs.

    Compares driver and torch, each GPU with the code in every library, and one operation of torch and of each extension
    on the GPU with the same operation on the CPU. Exit codes: 14 a fault; 19 no fault, but no GPU.
    """
    from gpu_tools.verify import verify_report
    from gpu_tools.verify.gpu import examine

    with Screen(what="trying the GPUs"):
        report = examine(environment)
    return verify_report.gpu_result(report)
