"""Runs external programs, without a terminal and with a timeout. Standard library only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

#: The exit statuses, as a shell and coreutils' timeout have them, of a program that took too long or cannot be started.
TIMED_OUT, NOT_STARTED = 124, 127


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    timeout: float | None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    stdin: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a program for at most `timeout` seconds (None: any time); why it did not start or end is its stderr."""
    try:
        return subprocess.run(
            argv,
            env=environ,
            cwd=folder,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, TIMED_OUT, "", f"no end after {timeout:.0f} s")
    except OSError as error:
        return subprocess.CompletedProcess(argv, NOT_STARTED, "", error.strerror or str(error))
