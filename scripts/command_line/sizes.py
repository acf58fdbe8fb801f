"""`megabuild sizes`: lists the sizes of packages and of their contents."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from command_line.options import GroupedCommand, json_option, option
from command_line.progress_display import Screen
from groundwork.errors import UsageError
from groundwork.result import Result

EXAMPLES = """
{prog} ~/venv                          packages and GPU code of an environment
{prog} torch-2.13.0-*.whl --all        every row of a package
{prog} torch==2.13.0 onnxruntime-gpu   before installing; downloads no packages
"""
WHAT = "Select"


@click.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument("subjects", nargs=-1, required=True, metavar="ENVIRONMENT | PACKAGE | REQUIREMENT...")
@option(WHAT, "--all", "everything", is_flag=True, help="Show every row.  [default: rows from 1 %]")
@option(WHAT, "--python", default=f"{sys.version_info[0]}.{sys.version_info[1]}", metavar="X.Y",
        help="Python for which requirements are resolved.  [default: the one that runs this]")  # fmt: skip
@json_option
def sizes(subjects: tuple[str, ...], everything: bool, python: str) -> Result:
    """List the sizes of packages, and of GPU code, symbols, headers and tests in them.

    Reads an environment (venv or conda), or a .conda, .tar.bz2 or .whl file; imports and runs nothing. For requirements
    (torch==2.15.0 jax), lists the size of a fresh installation of each, and of all together; downloads no packages.
    """
    from gpu_tools.sizes import sizes_report, uninstalled
    from gpu_tools.sizes.measure import measure

    path = Path(subjects[0])
    if len(subjects) == 1 and (path.exists() or path.suffix in (".whl", ".conda", ".bz2") or not subjects[0]):
        with Screen(what="measuring"):
            measured_here = measure(path)
        return sizes_report.report_sizes(measured_here, everything=everything)
    if existing := [subject for subject in subjects if Path(subject).exists()]:
        raise UsageError(
            f"{existing[0]}: measured alone", "pass one environment or package, or only requirements"
        )
    requirements = uninstalled.parse_requirements(subjects)
    with Screen() as screen:
        measured = uninstalled.measure_requirements(requirements, python, screen.note)
    return sizes_report.report_requirements(measured, python, everything=everything)
