"""`megabuild verify` and `verify-gpu`: what packages, wheels or an environment contain, and whether a GPU runs it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from megabuild.arch_list import cuda_archs
from megabuild.cli.text import Signs, table, wrapped
from megabuild.errors import NoGpuError, UnknownError, UsageError, VerdictError

if TYPE_CHECKING:  # reading libraries takes a moment to import, and most commands need none of it
    from megabuild.verify.gpu import GpuReport
    from megabuild.verify.verdict import LibraryVerdict, Verdict

_NAME_WIDTH = 27
_CODE_WIDTH = 22


@click.command()
@click.argument(
    "subjects", nargs=-1, required=True, metavar="PACKAGE... | ENVIRONMENT", type=click.Path(path_type=Path)
)
@click.option("--beside", metavar="ENVIRONMENT", type=click.Path(path_type=Path),
              help="The environment whose torch they must fit.")  # fmt: skip
@click.option("--accelerator", default="", metavar="cpu|cudaNNN", help="What they must be built for.")
@click.option(
    "--arch-list",
    "archs",
    default="",
    metavar="LIST",
    help='CUDA architectures they must have: "9.0;12.0+PTX" or sm_120.',
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
    was built. What lies in a published channel must be what was published (exit code 6). Exit code 14: something is not
    what is expected, or does not fit the torch beside it; 19: nothing is wrong as far as can be told, but a question
    cannot be answered.
    """
    from megabuild.plan import published
    from megabuild.verify.check import verify as check
    from megabuild.verify.expected import Expectation

    context.obj.json = as_json
    expect = Expectation(
        accelerator=accelerator,
        archs=cuda_archs(archs),
        python=python,
        torch_version=torch_version,
    )
    if expect.archs and expect.cuda is False:
        raise UsageError("--arch-list asks for CUDA, --accelerator for the CPU", "leave one of the two out")
    for subject in subjects:
        published.check(subject)
    verdicts = [check(subject, beside=beside, expect=expect) for subject in subjects]
    if as_json:
        context.obj.show([verdict.to_json() for verdict in verdicts])
    else:
        signs = Signs.of(sys.stdout)
        click.echo("\n\n".join("\n".join(verdict_lines(verdict, signs)) for verdict in verdicts))
    if not all(verdict.ok or verdict.unknown for verdict in verdicts):
        context.exit(VerdictError.exit_code)
    if any(verdict.unknown for verdict in verdicts):
        context.exit(UnknownError.exit_code)


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
    from megabuild.verify.gpu import examine

    context.obj.json = as_json
    report = examine(environment)
    if as_json:
        context.obj.show(report.to_json())
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


def verdict_lines(verdict: Verdict, signs: Signs) -> list[str]:
    """Return a verdict for people; the table in it fits 80 columns.

    Libraries of torch's that are well and carry no device code are counted, not listed.
    """
    shown = [
        library
        for library in verdict.libraries
        if not library.ok or library.archs or library.ptx or library.module != "torch"
    ]
    rows = [
        (
            _short(library.path),
            (library.torch or signs.dash).partition("+")[0],
            library.cuda or signs.dash,
            library.python or signs.dash,
            code(library.archs, library.ptx) or signs.dash,
            f"{signs.done} ok" if library.ok else "? unknown" if library.unknown else f"{signs.failed} no",
        )
        for library in shown
    ]
    lines = [f"{verdict.subject}", ""]
    lines += table(("library", "torch", "CUDA", "Python", "device code", "verdict"), rows) if rows else []
    if len(verdict.libraries) > len(shown):
        lines.append(f"and {len(verdict.libraries) - len(shown)} libraries of torch without device code")
    lines += _reasons(shown, signs)
    if not verdict.libraries:
        lines.append(f"{signs.failed} there is no library in it: nothing to verify")
    return lines


def _reasons(libraries: Sequence[LibraryVerdict], signs: Signs) -> list[str]:
    """Give each reason once, with the libraries that it holds for."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for library in libraries:
        if library.reason:
            mark = signs.warning if library.ok else "?" if library.unknown else signs.failed
            groups.setdefault((mark, library.reason, library.remedy), []).append(
                library.path.rpartition("/")[2]
            )
    lines: list[str] = []
    for (mark, reason, remedy), names in groups.items():
        lines += ["", *wrapped(f"{mark} {', '.join(names)}: {reason}")]
        lines += wrapped(f"  {remedy}") if remedy else []
    return lines


def gpu_lines(report: GpuReport, signs: Signs) -> list[str]:
    """Return what verify-gpu found, for people."""
    lines = [
        f"environment: {report.environment}",
        f"driver: {report.driver or 'none'} (CUDA {report.driver_cuda or 'none'})",
        f"torch: {report.torch or 'none'} (CUDA {report.torch_cuda or 'none'})",
    ]
    unused = f"GPU: {report.present}, which torch cannot use" if report.present else "GPU: none"
    lines += [f"GPU: {device.name}, {device.arch}" for device in report.devices] or [unused]
    if report.libraries:
        rows = [
            (_short(one.path), one.device, code(one.archs, one.ptx), one.runs) for one in report.libraries
        ]
        lines += ["", *table(("library", "GPU", "device code", "runs"), rows)]
    if report.operations:
        tried = [
            (one.name, f"{signs.done} as on the CPU" if one.ok else f"{signs.failed} no")
            for one in report.operations
        ]
        lines += ["", *table(("operation on the GPU", "result"), tried)]
        for one in report.operations:
            lines += wrapped(f"{signs.failed} {one.name}: {one.error}") if not one.ok else []
    for fault in report.faults:
        lines += ["", *wrapped(f"{signs.failed} {fault}")]
    return lines


def code(archs: Sequence[str], ptx: Sequence[str]) -> str:
    """Return device code in short: ``9.0 12.0 +PTX``, or ``7.5 to 12.0 (7) +PTX`` where that is too long."""
    numbers = [_dotted(name) for name in archs]
    tail = " +PTX" if ptx else ""
    text = " ".join(numbers)
    if len(text) > _CODE_WIDTH - len(tail):
        text = f"{numbers[0]} to {numbers[-1]} ({len(numbers)})"
    return f"{text}{tail}".strip()


def _dotted(name: str) -> str:
    digits = name.partition("_")[2]
    letter = digits[-1] if digits[-1].isalpha() else ""
    digits = digits.removesuffix(letter)
    return f"{digits[:-1]}.{digits[-1]}{letter}"


def _short(path: str) -> str:
    name = path.rpartition("/")[2]
    return name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 2]}.."
