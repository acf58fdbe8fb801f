"""A look inside a wheel or an environment with `megabuild.verify`: is it what an index, or pip, says it is?"""

from __future__ import annotations

from pathlib import Path

from megabuild.errors import MegabuildError
from megabuild.prebuilt.choose import Wanted
from megabuild.verify.check import verify
from megabuild.verify.expected import Expectation, accelerator


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
    wrong = [library for library in mine if not library.ok]
    if not wrong:
        return ""
    if target.cuda_version and not any(library.archs or library.ptx for library in mine):
        return f"claims {target.tag} but has no kernels ({Path(wrong[0].path).name}: {wrong[0].reason})"
    return f"is not what it should be ({Path(wrong[0].path).name}: {wrong[0].reason})"
