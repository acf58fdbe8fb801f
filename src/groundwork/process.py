"""Runs external programs, with a timeout or under the guard. Standard library only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groundwork import guard

#: Exit codes as in the shell and coreutils' timeout: the program timed out, or could not be started.
TIMED_OUT = 124
NOT_STARTED = 127


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    timeout: float | None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    stdin: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a program for at most `timeout` seconds (None: no limit); its stderr tells why it did not start or end."""
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
        return subprocess.CompletedProcess(argv, TIMED_OUT, "", f"not finished after {timeout:.0f} s")
    except OSError as error:
        return subprocess.CompletedProcess(argv, NOT_STARTED, "", error.strerror or str(error))


def describe_end(returncode: int) -> str:
    """Return how a program ended: ``exit code 1`` or ``killed by signal 7 (SIGBUS)``."""
    if returncode >= 0:
        return f"exit code {returncode}"
    number = -returncode
    for known in signal.Signals:
        if known == number:
            return f"killed by signal {number} ({known.name})"
    return f"killed by signal {number}"


def start_guarded(argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a program that ends, with its children, when this process ends or closes the program's standard input."""
    command = [sys.executable, "-I", "-S", guard.__file__, *argv]
    return subprocess.Popen(command, stdin=subprocess.PIPE, **options)
