"""Run git through GitPython: without prompts, hooks and transport programs, and with a time limit."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path

from groundwork.debian_packages import install_command
from groundwork.errors import AuditError
from pin_audit.addresses import clean

_SETTINGS = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.abbrev=7", "gc.auto=0", "maintenance.auto=false",
    "protocol.ext.allow=never", "credential.interactive=never", "fetch.recurseSubmodules=false", "fetch.unpackLimit=1",
    "transfer.bundleURI=false", "http.lowSpeedLimit=1", "http.lowSpeedTime=30",
)  # fmt: skip
_QUIET = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "GIT_NO_REPLACE_OBJECTS": "1"}
SECONDS = 240.0  # for one command
_LONGEST_ERROR = 300  # characters
_running: set[subprocess.Popen[bytes]] = set()


def stop(processes: Iterable[subprocess.Popen[bytes]] = _running) -> None:
    """Kill git processes with their helpers, which survive if only git is killed: all that are running by default."""
    for process in tuple(processes):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def run_git(folder: Path, *words: str, seconds: float = SECONDS, **environ: str) -> str:
    """Run git in a folder without prompts, hooks and transport programs; raises AuditError."""
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    from git import Git, GitCommandNotFound  # the import looks for the git program

    environ = {**_QUIET, "GIT_ALLOW_PROTOCOL": "none", **environ}
    command = ["git", *options_of(_SETTINGS), *words]
    try:
        started = Git(folder).execute(command, as_process=True, env=environ, start_new_session=True)
    except GitCommandNotFound:
        raise AuditError("git is not installed", f"run: {install_command('git')}") from None
    process = started.proc  # keep `started`: GitPython kills the process when it is collected
    assert process is not None
    _running.add(process)
    try:
        out, err = process.communicate(timeout=max(seconds, 0))
    except subprocess.TimeoutExpired:
        raise AuditError(f"git took longer than {seconds:.0f} s", "pass a longer --timeout SECONDS") from None
    finally:
        stop([process])
        process.wait()
        _running.discard(process)
    if process.returncode:
        reason = _main_error(err.decode(errors="replace"))
        raise AuditError(reason or f"git failed with exit status {process.returncode}")
    return str(out.decode(errors="surrogateescape"))


def options_of(settings: Iterable[str]) -> list[str]:
    """Return git's options for settings."""
    options = []
    for setting in settings:
        options += ["-c", setting]
    return options


def _main_error(text: str) -> str:
    """Return the first line of git's errors that names one, else the first line; empty if there is none."""
    lines = [clean(line) for line in re.split(r"[\r\n]+", text) if line.strip()]
    for line in lines:
        if line.startswith(("fatal:", "error:", "remote: fatal:")):
            return line[:_LONGEST_ERROR]
    return lines[0][:_LONGEST_ERROR] if lines else ""
