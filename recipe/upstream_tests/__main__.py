"""The command line.

    python …/upstream_tests gather TREE FOLDER
    python …/upstream_tests run [FILE[::TEST] …] [--each-python] [--jobs N]

The exit code of ``run`` is 1 if a test fails, or if no test of a file runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # run as a folder: Python does not know the package
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from upstream_tests.gather import gather
from upstream_tests.run import jobs, run
from upstream_tests.selection import Part, read_selection

_GATHER = "gather"


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="pytorch-tests", description="PyTorch's own tests.")
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser(_GATHER, help="copy the selected tests out of PyTorch's source")
    packing.add_argument("tree", type=Path)
    packing.add_argument("folder", type=Path)
    running = commands.add_parser("run", prog="pytorch-tests", help="run the tests with the installed torch")
    name = "FILE[::TEST]"
    running.add_argument(
        "files",
        nargs="*",
        metavar=name,
        help="run only these: test_linalg.py, or a test as a failure names it",
    )
    running.add_argument(
        "--each-python", action="store_true", help="omit the files that one Python is enough for"
    )
    running.add_argument("--jobs", "-n", type=int, default=jobs(), help="tests at once  [%(default)s]")
    options = parser.parse_args(arguments)
    if options.command == _GATHER:
        gather(options.tree, options.folder)
        return 0
    selection = read_selection()
    unknown = {name.partition("::")[0] for name in options.files} - set(selection.files())
    if unknown:
        running.error(f"selection.ini has no {', '.join(sorted(unknown))}")
    parts = [Part.EACH_PYTHON] if options.each_python else list(Part)
    return run(selection, options.files or selection.files(parts), options.jobs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
