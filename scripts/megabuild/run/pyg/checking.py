"""What an extension's package must be inside before it is published."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from megabuild.configs.config import Config
from megabuild.errors import IntegrityError
from megabuild.run.pyg.tasks import Task

if TYPE_CHECKING:
    from megabuild.verify.verdict import Verdict


def checker(config: Config, archs: Sequence[str]) -> Callable[[Path, Task], None]:
    """Return what looks into a task's package.

    Parameters
    ----------
    config:
        What it is for.
    archs:
        CUDA architectures that it must have kernels for, such as ``9.0`` and ``12.0+PTX``.
    """

    def check(package: Path, task: Task) -> None:
        from megabuild.verify.check import verify  # not before: runs without extensions need none of it
        from megabuild.verify.expected import Expectation

        expect = Expectation(
            accelerator=config.accelerator,
            archs=tuple(archs),
            python=task.python,
            torch_version=config.torch_version,
        )
        wrong = faults(verify(package, expect=expect))
        if wrong:
            reason, remedy = wrong[0]
            more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
            raise IntegrityError(f"{package.name} is not published: {reason}{more}", remedy)

    return check


def faults(verdict: Verdict) -> list[tuple[str, str]]:
    """Return reason and remedy of every library that is not what it should be, or of a subject without any."""
    wrong = [
        (f"{Path(library.path).name}: {library.reason}", library.remedy)
        for library in verdict.libraries
        if not library.ok
    ]
    if not wrong and not verdict.ok:
        wrong = [(f"nothing in {verdict.subject} is what it should be", "")]
    return wrong
