"""What is in a wheel, an environment or a built package, as `gpu_tools.verify` reads it, against what was wanted."""

from __future__ import annotations

from pathlib import Path

from gpu_tools.verify.check import verify
from gpu_tools.verify.verdict import Expectation
from groundwork.errors import IntegrityError, MegabuildError
from pyg_extensions.wheels import WantedWheel


def look_inside(path: Path, wanted: WantedWheel) -> str:
    """Return what is wrong with a wheel, or with one extension in an environment; nothing where it is as wanted."""
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
    except MegabuildError as error:
        return f"cannot be read: {error.message}"
    mine = [library for library in verdict.libraries if wanted.extension.name in Path(library.path).parts]
    if not mine:
        return f"contains no library of {wanted.extension.name}"
    # what nothing tells is told when it is installed, imported and asked
    wrong = [library for library in mine if not (library.ok or library.unknown)]
    if not wrong:
        return ""
    if target.cuda_version and not any(library.archs or library.ptx for library in mine):
        return f"claims {target.tag} but has no kernels ({Path(wrong[0].path).name}: {wrong[0].reason})"
    return f"is not what it should be ({Path(wrong[0].path).name}: {wrong[0].reason})"


def check_package(
    package: Path, *, accelerator: str, archs: tuple[str, ...], python: str | None, torch_version: str
) -> None:
    """Look into a built extension's package, for one Python or with None for all, before it is published.

    Raises
    ------
    IntegrityError
        A library in it is not what it should be.
    """
    expect = Expectation(accelerator=accelerator, archs=archs, python=python, torch_version=torch_version)
    verdict = verify(package, expect=expect)
    wrong = [library for library in verdict.libraries if not (library.ok or library.unknown)]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        reason = f"{Path(wrong[0].path).name}: {wrong[0].reason}{more}"
        raise IntegrityError(f"{package.name} is not published: {reason}", wrong[0].remedy)
    if not (verdict.ok or verdict.unknown):
        reason = f"nothing in {verdict.subject} is what it should be"
        raise IntegrityError(f"{package.name} is not published: {reason}")
