"""`megabuild sizes`: lists the sizes of packages and of their contents."""

from __future__ import annotations

from pathlib import Path

import click

from command_line.options import json_option
from groundwork.result import Result


@click.command()
@click.argument("subject", metavar="ENVIRONMENT|PACKAGE", type=click.Path(path_type=Path))
@click.option("--all", "everything", is_flag=True, help="Show every row.  [default: rows from 1 %]")
@json_option()
def sizes(subject: Path, everything: bool) -> Result:
    """List the sizes of packages, and of GPU code, symbols, headers and tests in them.

    Reads an environment (venv or conda), or a .conda, .tar.bz2 or .whl file; imports and runs nothing.
    """
    from gpu_tools.sizes import report
    from gpu_tools.sizes.measure import measure

    return report.report_sizes(measure(subject), everything=everything)
