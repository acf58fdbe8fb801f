"""Verify the libraries of a wheel, an environment or a built package with `gpu_tools.verify`."""

from __future__ import annotations

from pathlib import Path

from cuda_code.judge import empty
from gpu_tools.verify.check import verify
from gpu_tools.verify.expectation import Expectation
from groundwork.errors import IntegrityError
from pyg_extensions.find_wheel import WheelRequirements


def find_fault(path: Path, wanted: WheelRequirements) -> str:
    """Return what is wrong with a wheel, or with one extension in an environment; an empty string if nothing is.

    Raises UsageError: The environment cannot be looked into, which is no fault of the extension's.
    """
    target = wanted.target
    expect = Expectation(
        accelerator=target.tag.replace("cu", "cuda"),
        archs=wanted.archs,
        python=target.python,
        torch_version=target.torch_version,
        exact_archs=wanted.exact_archs,
    )
    beside = wanted.beside if path != wanted.beside else None
    try:
        verdict = verify(path, beside=beside, expect=expect)
    except IntegrityError as error:
        return f"cannot be read: {error.message}"
    mine = [library for library in verdict.libraries if wanted.extension.name in Path(library.path).parts]
    if not any(library.path.endswith(".so") for library in mine):
        return f"has {empty(wanted.extension.name).reason}"
    # what is unknown here is checked after installation, by importing it
    wrong = [library for library in mine if not (library.ok or library.unknown)]
    if not wrong:
        return ""
    if target.cuda_version and not any(library.archs or library.ptx for library in mine):
        return f"claims {target.tag} but has no kernels ({Path(wrong[0].path).name}: {wrong[0].reason})"
    return f"does not fit ({Path(wrong[0].path).name}: {wrong[0].reason})"


def check_package(
    package: Path, *, accelerator: str, archs: tuple[str, ...], python: str | None, torch_version: str
) -> None:
    """Verify a built extension's package, for one Python or with None for all, before it is published.

    Raises IntegrityError: A library in it does not fit.
    """
    expect = Expectation(accelerator=accelerator, archs=archs, python=python, torch_version=torch_version)
    verdict = verify(package, expect=expect)
    wrong = [library for library in verdict.libraries if not (library.ok or library.unknown)]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        reason = f"{Path(wrong[0].path).name}: {wrong[0].reason}{more}"
        raise IntegrityError(f"{package.name} is not published: {reason}", wrong[0].remedy)
    if not (verdict.ok or verdict.unknown):
        reason = f"{verdict.subject} has no library that fits"
        raise IntegrityError(f"{package.name} is not published: {reason}")
