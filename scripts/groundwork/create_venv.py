"""Makes the private environment from its lock, with what the machine has for that. Standard library only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from groundwork import guard, installed, pip_settings
from groundwork.errors import ProviderError

_HASHED = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement")


def make(environment: Path, lock: Path, sizes: Path) -> None:
    """Install what a lock names into a new environment, check it, and note the ``sizes`` of its native files.

    Raises ProviderError: Neither uv nor venv and pip could make it; the message ends with their output.
    """
    started = time.monotonic()
    again = "again " if environment.exists() else ""
    sys.stderr.write(f"setting up a private environment in .venv {again}(only now, from {lock.name}) ... ")
    sys.stderr.flush()
    output = ""
    for way in (_with_pip, *([_with_uv] if shutil.which("uv") else [])):
        shutil.rmtree(environment, ignore_errors=True)
        environment.parent.mkdir(parents=True, exist_ok=True)
        (environment.parent / ".gitignore").write_text("*\n")
        problem = way(environment, lock) or installed.lacking(environment, lock, sizes)
        if not problem:
            break
        output = output or problem
    else:
        shutil.rmtree(environment, ignore_errors=True)
        sys.stderr.write("failed\n")
        raise ProviderError(
            f"the environment could not be made; the last output was:\n{output}",
            "check that `python3 -m venv` works (Debian: apt-get install python3-venv) and that pip reaches its index",
        )
    sys.stderr.write(f"done in {time.monotonic() - started:.0f} s\n")


def _with_pip(environment: Path, lock: Path) -> str:
    """Use venv and pip, which know the machine's mirrors."""
    python = str(environment / "bin" / "python")
    if problem := _call([sys.executable, "-I", "-m", "venv", str(environment)], os.environ):
        return problem
    install = [python, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return _call([*install, *_HASHED, str(lock)], pip_settings.environment(python, os.environ))


def _with_uv(environment: Path, lock: Path) -> str:
    """Use uv, which needs neither of them."""
    environ = {"UV_SYSTEM_CERTS": "1", **os.environ}
    python = str(environment / "bin" / "python")
    venv = ["uv", "--quiet", "venv", "--python", sys.executable, str(environment)]
    return _call(venv, environ) or _call(
        ["uv", "--quiet", "pip", "install", "--python", python, *_HASHED, str(lock)], environ
    )


def _call(command: list[str], environ: Mapping[str, str]) -> str:
    """Return the last output of a command that failed, else an empty string; it never outlives this process."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        close_fds=False,
        env=environ,
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        code = process.wait()
    return "\n".join(output.strip().splitlines()[-8:]) or f"{command[0]} exited with {code}" if code else ""
