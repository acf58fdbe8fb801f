"""What is in a wheel, an environment or a built package, as `megabuild.verify` reads it, against what was wanted."""

from __future__ import annotations

from pathlib import Path

from megabuild.configs.config import Config, accelerator
from megabuild.errors import IntegrityError, MegabuildError
from megabuild.extension_table import archs_of
from megabuild.extensions.wheels import Wanted
from megabuild.verify.check import verify
from megabuild.verify.verdict import Expectation


def look_inside(path: Path, wanted: Wanted) -> str:
    """Return what is wrong, or an empty string for what is as wanted.

    Parameters
    ----------
    path:
        A wheel, or the folder of an environment, of which only the wanted extension is judged.
    wanted:
        What it must be.
    """
    target = wanted.target
    expect = Expectation(
        accelerator=accelerator(target.cuda_version),
        archs=wanted.archs,
        python=target.python,
        torch_version=target.torch_version,
        exact_archs=wanted.exact_archs,
    )
    beside = wanted.beside if path != wanted.beside else None
    try:
        verdict = verify(path, beside=beside, expect=expect)
    except MegabuildError as error:
        return f"cannot be looked into: {error.message}"
    mine = [library for library in verdict.libraries if wanted.extension.name in Path(library.path).parts]
    if not mine:
        return f"holds no library of {wanted.extension.name}"
    # what nothing tells is told when it is installed, imported and asked
    wrong = [library for library in mine if not (library.ok or library.unknown)]
    if not wrong:
        return ""
    if target.cuda_version and not any(library.archs or library.ptx for library in mine):
        return f"claims {target.tag} but has no kernels ({Path(wrong[0].path).name}: {wrong[0].reason})"
    return f"is not what it should be ({Path(wrong[0].path).name}: {wrong[0].reason})"


def check_package(package: Path, config: Config, python: str | None) -> None:
    """Look into a built extension's package before it is published.

    Parameters
    ----------
    package:
        The package file.
    config:
        What it is for, with everything that was chosen for the run.
    python:
        The Python it is for, or None for all.

    Raises
    ------
    IntegrityError
        A library in it is not what it should be.
    """
    expect = Expectation(
        accelerator=config.accelerator,
        archs=archs_of(config.variant),
        python=python,
        torch_version=config.torch_version,
    )
    verdict = verify(package, expect=expect)
    wrong = [library for library in verdict.libraries if not (library.ok or library.unknown)]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        reason = f"{Path(wrong[0].path).name}: {wrong[0].reason}{more}"
        raise IntegrityError(f"{package.name} is not published: {reason}", wrong[0].remedy)
    if not (verdict.ok or verdict.unknown):
        reason = f"nothing in {verdict.subject} is what it should be"
        raise IntegrityError(f"{package.name} is not published: {reason}")
