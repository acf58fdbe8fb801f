"""Processes of an earlier run that outlived it: there should be none, and they would write where the next run reads."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil

#: Set for the engine itself; build scripts do not get it, but know folders below the state.
MARKER = "MEGABUILD_STATE"
_SCRIPT_VARIABLES = ("PREFIX", "SRC_DIR", "BUILD_PREFIX")


def find(state: Path) -> list[psutil.Process]:
    """Return the processes that belong to runs of a state folder: engines, build scripts, compilers, tests.

    A person's shell is left out, even if it has sourced a build's environment: it has a terminal, the engine has none.
    """
    found = []
    below = str(state.absolute()) + "/"
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            environment = process.environ()
            ours = environment.get(MARKER) == str(state.absolute()) or any(
                environment.get(name, "").startswith(below) for name in _SCRIPT_VARIABLES
            )
            if ours and process.pid != psutil.Process().pid and process.terminal() is None:
                found.append(process)
    return found


def end(state: Path, *, seconds: float = 5.0) -> int:
    """Kill what :func:`find` finds, wait so many seconds until it is gone, and return how many there were.

    The caller holds the state's lock, so that nothing in it belongs to another run.
    """
    processes = find(state)
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=seconds)
    return len(processes)
