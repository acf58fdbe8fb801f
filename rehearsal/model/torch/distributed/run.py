"""torchrun: run a script in a single process."""

from __future__ import annotations

import os
import subprocess
import sys


def main() -> int:
    """Run the command line; return the script's exit status."""
    environment = {**os.environ, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    return subprocess.run([sys.executable, *sys.argv[1:]], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
