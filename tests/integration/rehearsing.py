"""Starts rehearsals as users do, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[2] / "scripts" / "megabuild"


def command(config: str, output: Path, *options: str) -> list[str]:
    """Return the command that rehearses a config in an output folder."""
    return [sys.executable, str(PROGRAM), "build", config, "--rehearse", "--output", str(output), *options]


def rehearse(config: str, output: Path, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Rehearse a config in an output folder; return the exit code and the output."""
    return subprocess.run(
        command(config, output, *options), env={**os.environ, **environ}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
