"""`megabuild sizes`: where the bytes go, as a table and as JSON."""

from __future__ import annotations

from pathlib import Path

import click

from command_line.options import json_option
from groundwork.result import Result


@click.command()
@click.argument("subject", metavar="ENVIRONMENT|PACKAGE", type=click.Path(path_type=Path))
@click.option("--all", "everything", is_flag=True, help="Every row, however small.")
@json_option()
def sizes(subject: Path, everything: bool) -> Result:
    """Say where the bytes of an installation go.

    Measures the folder of an environment (venv or conda), or a .conda, .tar.bz2 or .whl file. Nothing is imported or
    run.
    """
    from gpu_tools.sizes import report
    from gpu_tools.sizes.measure import measure

    return report.report_sizes(measure(subject), everything=everything)
