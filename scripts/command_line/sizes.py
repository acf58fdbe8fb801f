"""`megabuild sizes`: where the bytes go, as a table and as JSON."""

from __future__ import annotations

import click

from command_line.options import json_option
from groundwork.result import Result


@click.command()
@click.argument("subjects", nargs=-1, required=True, metavar="SUBJECT...")
@click.option(
    "--python", metavar="X.Y", help="The Python that a requirement is for; this program's by default."
)
@click.option("--all", "everything", is_flag=True, help="Every row, however small.")
@json_option()
def sizes(subjects: tuple[str, ...], python: str | None, everything: bool) -> Result:
    """Say where the bytes of an installation go.

    A SUBJECT is the folder of an environment (venv or conda), a .conda, .tar.bz2 or .whl file, or a requirement
    such as torch==2.15.0, which is looked up on pip's indexes without fetching a wheel. Several requirements are one
    environment. Nothing is installed, imported or run.
    """
    from gpu_tools.sizes import report
    from gpu_tools.sizes.measure import measure

    return report.report_sizes(measure(*subjects, python=python), everything=everything)
