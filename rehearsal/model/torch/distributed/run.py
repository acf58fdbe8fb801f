"""torchrun: starts a script several times, each with its rank in the environment."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments:
        Words after the program's name; those of this process if None.

    Returns
    -------
    int
        The highest exit status of the processes.
    """
    parser = argparse.ArgumentParser(prog="torchrun", description="Start a Python script in several processes.")
    parser.add_argument("--nproc-per-node", "--nproc_per_node", type=int, default=1, metavar="N")
    parser.add_argument("script")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    size = str(options.nproc_per_node)
    workers = [
        subprocess.Popen(
            [sys.executable, options.script, *options.rest],
            env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": size},
        )
        for rank in range(options.nproc_per_node)
    ]
    return max(worker.wait() for worker in workers)


if __name__ == "__main__":
    sys.exit(main())
