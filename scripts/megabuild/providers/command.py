"""Run a program and turn its failure into a provider error with the last lines it printed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from megabuild.engine import guard
from megabuild.errors import ProviderError

_LINES_SHOWN = 12


def run(
    argv: Sequence[str],
    *,
    what: str,
    remedy: str = "",
    timeout: float = 60.0,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    guarded: bool = False,
) -> str:
    """Run `argv` and return what it printed on stdout.

    Parameters
    ----------
    argv:
        Program and arguments.
    what:
        What is being done, as the subject of an error message: "resolving wheels for Python 3.12".
    remedy:
        What the user can do when it fails.
    timeout:
        Seconds after which the program is killed.
    env, cwd:
        Environment (None: this process's) and working folder.
    guarded:
        End the program, and what it starts, with this process, even by ``kill -9``: for what goes on for minutes.

    Raises
    ------
    ProviderError
        The program is missing, failed, or took longer than `timeout`.
    """
    # the guard ends everything when the other end of its input closes, which only this process has
    reading, writing = os.pipe() if guarded else (subprocess.DEVNULL, None)
    before = [sys.executable, "-I", "-S", guard.__file__] if guarded else []
    try:
        done = subprocess.run(
            [*before, *argv],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=None if env is None else dict(env),
            cwd=cwd,
            stdin=reading,
            check=False,
        )
    except FileNotFoundError as error:
        raise ProviderError(f"{what}: {argv[0]} is not installed", remedy) from error
    except subprocess.TimeoutExpired as error:
        raise ProviderError(f"{what}: no end after {timeout:.0f} s", remedy) from error
    finally:
        if writing is not None:
            os.close(reading)
            os.close(writing)
    if done.returncode != 0:
        printed = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        errors = [line for line in printed if not line.startswith("WARNING:")]
        tail = "\n  ".join((errors or printed)[-_LINES_SHOWN:])
        raise ProviderError(f"{what} failed with exit status {done.returncode}:\n  {tail}", remedy)
    return done.stdout
