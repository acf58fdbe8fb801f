"""Before a build with the stub compiler: make the generated sources, then list the headers of every object.

Runs in a Debian root: standard library only; the recipe's cmake_python_swap is found through PYTHONPATH.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from include_scan import write_depfiles

from cmake_python_swap.ninja_dry_run import Graph


def generated(build_dir: Path) -> list[str]:
    """Sources and headers that custom commands make: they must be there before anybody reads what they include."""
    return sorted(
        output
        for edge in Graph(build_dir).edges
        if edge.rule == "CUSTOM_COMMAND"
        for output in edge.outputs
        if output.endswith((".h", ".cpp", ".c")) and "${" not in output
    )


if __name__ == "__main__":
    build, lists = map(Path, sys.argv[1:])
    lists.mkdir(exist_ok=True)
    subprocess.run(["ninja", "-C", build, *generated(build)], check=True)
    write_depfiles(build, lists)
