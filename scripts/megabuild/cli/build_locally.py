"""`build-locally.py`: the build command under the name that conda-smithy gave it."""

from __future__ import annotations

from megabuild.cli.build import build
from megabuild.cli.exits import Invocation, run
from megabuild.cli.root import repository


def main() -> None:
    """Run the command line and end the process."""
    run(build, name="build-locally.py", invocation=Invocation(log_folder=repository() / "output" / "logs"))
