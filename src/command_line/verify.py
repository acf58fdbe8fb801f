"""`megabuild verify` and `verify-gpu`: inspect packages, wheels or an environment, and try it on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from command_line.options import json_option
from command_line.parameters import command
from command_line.progress_display import Screen
from groundwork.errors import UsageError
from groundwork.names import cuda_archs
from groundwork.option_fields import argument, option
from groundwork.result import Result

EXAMPLES = """
{prog} ~/venv                      every library of an environment
{prog} ~/venv --arch-list native   fail if a library lacks code for the GPUs here
{prog} torch_scatter-2.1.2-*.whl --beside ~/venv
"""
GPU_EXAMPLES = """
{prog} ~/venv
"""
EXPECT = "Expect"


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """The options of `verify`."""

    subjects: tuple[Path, ...] = argument("PACKAGE... | ENVIRONMENT")
    beside: Path | None = option(
        EXPECT, "--beside", metavar="ENVIRONMENT",
        help="Environment whose torch the libraries must fit.",
    )  # fmt: skip
    accelerator: str = option(
        EXPECT, "--accelerator", default="", metavar="cpu|cudaNNN",
        help="Accelerator the libraries must be built for.",
    )  # fmt: skip
    archs: str = option(
        EXPECT, "--arch-list", default="", metavar="LIST",
        help='GPUs that must run the libraries: "9.0;12.0", sm_120, native; "12.0+PTX" with PTX.',
    )  # fmt: skip


@command(VerifyOptions, examples=EXAMPLES)
@json_option
def verify(options: VerifyOptions) -> Result:
    """Inspect packages, wheels or an environment, without a GPU.

    Lists for every library its GPU code and the torch, CUDA and Python it was built for. Exit codes: 6 a published
    package has changed; 14 a library is wrong; 19 a question has no answer.
    """
    from gpu_tools.verify import verify_report
    from gpu_tools.verify.check import verify as check
    from gpu_tools.verify.expectation import Expectation
    from gpu_tools.verify.gpu import replace_native

    archs = cuda_archs(replace_native(options.archs))
    expect = Expectation(accelerator=options.accelerator, archs=archs, exact_archs=False)
    if expect.archs and expect.cuda is False:
        raise UsageError("--arch-list needs CUDA, but --accelerator is cpu", "leave out one of them")
    with Screen(what="inspecting the libraries"):
        for subject in options.subjects:
            if subject.suffix == ".conda":  # only these have records; imported late, as it takes a moment
                from megabuild.store import published

                published.check(subject)
        verdicts = [check(subject, beside=options.beside, expect=expect) for subject in options.subjects]
    return verify_report.verdict_result(verdicts)


@dataclass(frozen=True, kw_only=True)
class VerifyGpuOptions:
    """The options of `verify-gpu`."""

    environment: Path = argument()


@command(VerifyGpuOptions, name="verify-gpu", examples=GPU_EXAMPLES)
@json_option
def verify_gpu(options: VerifyGpuOptions) -> Result:
    """Try an environment's torch and extensions on this machine's GPUs.

    Compares driver and torch, each GPU with the code in every library, and one operation of torch and of each extension
    on the GPU with the same operation on the CPU. Exit codes: 14 a fault; 19 no fault, but no GPU.
    """
    from gpu_tools.verify import verify_report
    from gpu_tools.verify.gpu import examine

    with Screen(what="trying the GPUs"):
        report = examine(options.environment)
    return verify_report.gpu_result(report)
