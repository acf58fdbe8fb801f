"""Whether memory ran out: by programs' output, the kernel's OOM counters, and how little was free."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from groundwork.resources.machine import CGROUP, OWN_GROUPS, Machine, groups, measure

_VMSTAT = Path("/proc/vmstat")
_SECONDS = 1.0
_SAMPLES = 30
#: Share of memory that is free when daemons such as earlyoom and systemd-oomd, whom the kernel does not count, kill.
_LITTLE = 0.1
#: "CUDA error: out of memory" and the like are about a GPU's memory.
_LACKED = re.compile(
    r"cannot allocate memory|memory exhausted|std::bad_alloc|not enough memory"
    r"|out of memory allocating|(?-i:(?<! error)(?<!exception)): out of memory"
    r"|\bmemory allocation (?:failure|error|of \d+ bytes failed)|^(?:E +)?(?:\S+\._Array)?MemoryError\b",
    re.IGNORECASE | re.MULTILINE,
)
_KILLED = re.compile(
    r"Killed signal terminated program|signal:? 9\b|\bKilled\s{2,}|: Killed\b|^Killed$|\bSIGKILL\b"
    r"|exit(?:ed with)? ?(?:code|status)?[:=]? ?(?:137|-9)\b|\[code=137\]|\bError 137\b",
    re.IGNORECASE | re.MULTILINE,
)


def lacked_memory(text: str) -> bool:
    """Return whether a program's output says that an allocation failed."""
    return _LACKED.search(text) is not None


def was_killed(text: str) -> bool:
    """Return whether a program's output shows that a child was ended by SIGKILL, for whatever reason."""
    return _KILLED.search(text) is not None


def kernel_kills(vmstat: Path = _VMSTAT, cgroup: Path = CGROUP, own: Path = OWN_GROUPS) -> int | None:
    """Return the number of OOM kills so far; None where the kernel does not count them.

    ``oom_kill`` stands in /proc/vmstat (proc(5)), which counts in containers, too; and in a cgroup's memory.events
    (version 2) or memory.oom_control (version 1).
    """
    files = [vmstat]
    names = ("memory.events", "memory.oom_control")
    files += [group / name for group in groups(cgroup, own, "memory") for name in names]
    found = [count for path in files if (count := _count(path)) is not None]
    return sum(found) if found else None


def _count(path: Path) -> int | None:
    try:
        words = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return None
    return next((int(line[1]) for line in words if len(line) == 2 and line[0] == "oom_kill"), None)


class Watch:
    """Watches memory from now on."""

    def __init__(
        self, kills: Callable[[], int | None] = kernel_kills, machine: Callable[[], Machine] = measure
    ) -> None:
        self._kills, self._machine = kills, machine
        self._before = kills()
        self._next = 0.0
        self._free: deque[float] = deque(maxlen=_SAMPLES)

    def tick(self) -> None:
        """Sample free memory, at most once a second."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _SECONDS
            now = self._machine()
            self._free.append(now.memory_free / now.memory)

    def short(self) -> bool:
        """Return whether memory ran out, or nearly so in the last half minute; True where the kernel does not count."""
        now = self._kills()
        if self._before is None or now is None:
            return True
        return now > self._before or min(self._free, default=1.0) < _LITTLE
