"""Types are converted by several threads at once; msgspec fills in a Struct's types at its first conversion."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_FIRST_CONVERSION = """
import sys, threading
sys.setswitchinterval(1e-6)
import msgspec
from pin_audit.snapshots import Snapshot
start = threading.Event()

def convert():
    start.wait()
    msgspec.convert({"package": "a", "version": "1", "made": "", "sources": []}, Snapshot)

threads = [threading.Thread(target=convert) for _ in range(8)]
for thread in threads:
    thread.start()
start.set()
for thread in threads:
    thread.join()
"""


def test_first_conversion_in_many_threads(repository: Path) -> None:
    """Without types that were resolved before, half of these processes die of a segmentation fault."""
    environ = {"PYTHONPATH": str(repository / "scripts")}
    command = [sys.executable, "-c", _FIRST_CONVERSION]
    codes = [subprocess.run(command, env=environ, check=False).returncode for _ in range(8)]
    assert codes == [0] * 8
