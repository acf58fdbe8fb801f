"""`megabuild sizes`: lists the sizes of packages and of their contents."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from command_line.options import json_option
from command_line.parameters import command
from command_line.progress_display import Screen
from groundwork.errors import UsageError
from groundwork.option_fields import argument, option, switch
from groundwork.result import Result

EXAMPLES = """
{prog} ~/venv                          packages and GPU code of an environment
{prog} torch-2.13.0-*.whl --all        every row of a package
{prog} torch==2.13.0 onnxruntime-gpu   before installing; downloads no packages
"""
SELECT = "Select"


@dataclass(frozen=True, kw_only=True)
class SizesOptions:
    """The options of the command."""

    subjects: tuple[str, ...] = argument("ENVIRONMENT | PACKAGE | REQUIREMENT...")
    everything: bool = switch(SELECT, "--all", help="Show every row.  [default: rows from 1 %]")
    python: str = option(
        SELECT, "--python", default=f"{sys.version_info[0]}.{sys.version_info[1]}", metavar="X.Y",
        help="Python for which requirements are resolved.  [default: the one that runs this]",
    )  # fmt: skip


@command(SizesOptions, examples=EXAMPLES)
@json_option
def sizes(options: SizesOptions) -> Result:
    """List the sizes of packages, and of GPU code, symbols, headers and tests in them.

    Reads an environment (venv or conda), or a .conda, .tar.bz2 or .whl file; imports and runs nothing. For requirements
    (torch==2.15.0 jax), lists the size of a fresh installation of each, and of all together; downloads no packages.
    """
    from gpu_tools.sizes import sizes_report, uninstalled
    from gpu_tools.sizes.measure import measure

    subjects = options.subjects
    if len(subjects) == 1 and not _is_requirement(subjects[0]):
        with Screen(what="measuring"):
            measured_here = measure(Path(subjects[0]))
        return sizes_report.report_sizes(measured_here, everything=options.everything)
    for subject in subjects:
        if Path(subject).exists():
            remedy = "pass one environment or package, or only requirements"
            raise UsageError(f"{subject}: measured alone", remedy)
    requirements = uninstalled.parse_requirements(subjects)
    with Screen() as screen:
        measured = uninstalled.measure_requirements(requirements, options.python, screen.note)
    return sizes_report.report_requirements(measured, options.python, everything=options.everything)


def _is_requirement(subject: str) -> bool:
    """Return whether a word names a package to resolve, and no file or folder, even a missing one."""
    if not subject or Path(subject).exists():
        return False
    return Path(subject).suffix not in (".whl", ".conda", ".bz2")
