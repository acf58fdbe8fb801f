"""Measure the start of build-locally.py: `python benchmarks/start.py [times]`.

Prints the seconds of the first start in a fresh copy (which sets up .venv), and the median of several later starts with
--version, with --help and with an error.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def measure(folder: Path, *arguments: str) -> float:
    """Run build-locally.py once; return its seconds of wall time."""
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, str(folder / "build-locally.py"), *arguments], capture_output=True, check=False
    )
    return time.perf_counter() - started


def main() -> None:
    """Print a row for each command."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in ("build-locally.py", "requirements.lock"):
            shutil.copy(ROOT / name, folder)
        for name in ("scripts", ".ci_support"):
            shutil.copytree(ROOT / name, folder / name)
        print(f"first start      {measure(folder, '--version'):6.2f} s")
        for arguments in (["--version"], ["--help"], ["no_such_config", "--plan"]):
            median = statistics.median(measure(folder, *arguments) for _ in range(times))
            print(f"{' '.join(arguments):24} {median:6.2f} s")


if __name__ == "__main__":
    main()
