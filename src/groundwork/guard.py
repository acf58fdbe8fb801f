"""Run a command, and end it with all its descendants when standard input closes. Standard library only.

``python3 guard.py COMMAND…``

The driver holds the other end of standard input and never writes to it. When the driver ends, even by ``kill -9`` or
behind a container client, the pipe closes and the command ends with all its compilers and tests. The engine cannot do
this itself: it holds Python's interpreter lock for hours, so that no other thread runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

#: Seconds between SIGTERM and SIGKILL; ninja removes half-written objects in this time.
GRACE_SECONDS = 2.0
_POLL_SECONDS = 0.05
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    """Set a process property on Linux; other systems have none, and rely on the pipe alone."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _descendants() -> list[int]:
    """Return the process ids of all descendants except zombies, the deepest last."""
    children: dict[int, list[int]] = {}
    for pid, parent in _processes():
        children.setdefault(parent, []).append(pid)
    below = [*children.get(os.getpid(), [])]
    for pid in below:  # grows meanwhile
        below += children.get(pid, [])
    return below


def _processes() -> list[tuple[int, int]]:
    """Return the ids of every living process and of its parent."""
    if not os.path.isdir("/proc/self"):
        return _processes_of_ps()
    result = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", errors="replace") as file:
            # the program's name, in parentheses, may hold spaces and parentheses
            state, parent, *_ = file.read().rpartition(")")[2].split()
            if state != "Z":
                result.append((int(name), int(parent)))
    return result


def _processes_of_ps() -> list[tuple[int, int]]:
    argv = ["ps", "-A", "-o", "pid=,ppid=,stat="]
    table = subprocess.run(argv, capture_output=True, text=True, check=False)
    result = []
    for line in table.stdout.splitlines():
        columns = line.split()
        if len(columns) > 2 and not columns[2].startswith("Z"):
            result.append((int(columns[0]), int(columns[1])))
    return result


def _signal_all(number: int) -> bool:
    """Send a signal to all descendants; return whether there were any."""
    below = _descendants()
    for pid in below:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return bool(below)


def _reap(child: subprocess.Popen[bytes]) -> None:
    """Reap all descendants that have ended, orphans included."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if pid == child.pid:
                child.returncode = os.waitstatus_to_exitcode(status)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End all descendants: SIGTERM first, SIGKILL after ``GRACE_SECONDS``."""
    _signal_all(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    while _descendants() and time.monotonic() < deadline:
        _reap(child)
        time.sleep(0.05)
    while _signal_all(signal.SIGKILL):  # repeat: processes may have been forked meanwhile
        _reap(child)
        time.sleep(0.05)
    _reap(child)


def run(argv: Sequence[str]) -> int:
    """Run ``argv`` until it ends, standard input closes or a signal arrives; return its exit code as a shell would."""
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, ask)
    # Grandchildren whose parents end become children of this process, not of init, where they could not be found.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    child = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, preexec_fn=lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    )
    while child.returncode is None:
        _reap(child)
        if child.returncode is None and (asked or _input_closed(_POLL_SECONDS)):
            asked.append(signal.SIGTERM)
            break
    _end(child)
    if asked:
        return 128 + asked[0]
    return _shell_code(child.returncode)


def _shell_code(returncode: int | None) -> int:
    """Return a shell's exit code for a program; None: its end was not seen."""
    if returncode is None:
        return 128 + signal.SIGKILL
    if returncode < 0:
        return 128 - returncode
    return returncode


def _input_closed(seconds: float) -> bool:
    """Return whether standard input closes within some seconds."""
    try:
        readable, _, _ = select.select([0], [], [], seconds)
        return bool(readable) and os.read(0, 4096) == b""
    except (OSError, ValueError):
        return True


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
