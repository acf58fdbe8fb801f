"""Starts rehearsals as users do, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FRONT_DOOR = Path(__file__).resolve().parents[2] / "build-locally.py"


def rehearse(config: str, output: Path, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Rehearse a config in an output folder; return the exit code and the output."""
    command = [sys.executable, str(FRONT_DOOR), config, "--rehearse", "--output", str(output), *options]
    return subprocess.run(
        command, env={**os.environ, **environ}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
