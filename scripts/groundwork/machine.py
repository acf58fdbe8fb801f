"""What this process may use of the machine, cgroups counted; its processes; and whether memory ran out."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import shutil
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

_CGROUP, _OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_PROC, _VMSTAT = Path("/proc"), Path("/proc/vmstat")
#: Of files that can still be made; some file systems have no limit, and report 0 of 0.
_LEAST_BYTES, _LEAST_FILES = 50_000_000, 100
#: Between the starts of two processes with one id: a clock that is set moves both.
_SAME_SECONDS = 60.0
#: Of <malloc.h>.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
#: Free memory is sampled once a second, for half a minute.
_SAMPLE_SECONDS, _SAMPLES = 1.0, 30
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


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Resources that this process may use."""

    cores: int  #: Processors we may run on: affinity and the cgroup's quota counted.
    memory: int  #: Bytes of memory, the cgroup's limit counted.
    memory_free: int  #: Bytes that could be used now without swapping.


def measure(cgroup: Path = _CGROUP, own: Path = _OWN_GROUPS) -> Machine:
    """Measure the machine, within the limits of this process's cgroups and their ancestors."""
    memory = psutil.virtual_memory()
    total, free = int(memory.total), int(memory.available)
    for group in _groups(cgroup, own, "memory"):
        limit = _number(group / "memory.max") or _number(group / "memory.limit_in_bytes")
        if limit and limit < memory.total:  # version 1 writes a number near 2**63 where there is none
            used = _number(group / "memory.current") or _number(group / "memory.usage_in_bytes") or 0
            # files read or written lately count as used, but the kernel gives them up for whoever needs memory
            free = min(free, max(0, limit - max(0, used - _file_cache(group))))
            total = min(total, limit)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [quota for group in _groups(cgroup, own, "cpu") if (quota := _quota(group))]
    cores = max(1, min([cores, *(int(quota + 0.5) for quota in quotas)]))
    return Machine(cores=cores, memory=total, memory_free=free)


def _groups(cgroup: Path, own: Path, controller: str) -> list[Path]:
    """Return the folders of this process's groups and those above: one tree, or in version 1 one per controller."""
    trees = {cgroup: "/", cgroup / controller: "/"}
    with contextlib.suppress(OSError, ValueError):  # no such thing here
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if ".." not in path and (not controllers or controller in controllers.split(",")):
                trees[cgroup / controller if controllers else cgroup] = path
    groups = []
    for tree, path in trees.items():
        parts = [part for part in path.split("/") if part]
        groups += [tree.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    return groups


def _quota(group: Path) -> float | None:
    """Processors that a group's quota amounts to, or None without one."""
    try:
        quota, period = (group / "cpu.max").read_text().split()
        return int(quota) / int(period) if quota.isdigit() else None
    except (OSError, ValueError):
        old, period_us = _number(group / "cpu.cfs_quota_us"), _number(group / "cpu.cfs_period_us")
        return old / period_us if old and old > 0 and period_us else None


def _file_cache(group: Path) -> int:
    """Bytes of cached files in a group that nobody maps or has used twice."""
    try:
        values = dict(line.split(" ", 1) for line in (group / "memory.stat").read_text().splitlines())
        return int(values.get("total_inactive_file") or values.get("inactive_file") or "0")
    except (OSError, ValueError):
        return 0


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # absent, or "max"
        return None


def machine_platform() -> str:
    """Return the conda subdir of this machine, such as "linux-64"."""
    system, machine = platform.system(), platform.machine()
    machines = {"x86_64": "64", "amd64": "64", "aarch64": "aarch64", "arm64": "arm64"}
    prefix = {"Linux": "linux", "Darwin": "osx"}.get(system, system.lower())
    return f"{prefix}-{machines.get(machine.lower(), machine)}"


def disk_free(folder: Path) -> int:
    """Bytes that can be written at ``folder``, which need not exist yet."""
    return shutil.disk_usage(_existing(folder)).free


def disk_of(folder: Path) -> int:
    """Return what tells the file system of ``folder``, which need not exist yet, from others."""
    return _existing(folder).stat().st_dev


def _existing(folder: Path) -> Path:
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


def is_full(folder: Path) -> bool:
    """Return whether a folder's file system is practically full, of bytes or inodes."""
    status = os.statvfs(folder)
    few_files = status.f_files > 0 and status.f_favail < _LEAST_FILES
    return few_files or status.f_bavail * status.f_frsize < _LEAST_BYTES


def is_running(pid: int, since: float) -> bool:
    """Return whether the process that began at ``since`` is there; also where this user may not look at it."""
    try:
        return abs(psutil.Process(pid).create_time() - since) < _SAME_SECONDS
    except (psutil.Error, ValueError, OverflowError):
        try:
            os.kill(pid, 0)
        except PermissionError:  # of somebody else, and /proc is mounted with hidepid
            return True
        except (OSError, OverflowError):
            pass
        return False


def tree_memory(root: int) -> int:
    """Return the resident bytes of a process and of all below it; 0 where there is no /proc.

    By the kernel's lists of children (proc(5)): asking every process takes a hundred times as long.
    """
    queue, pages = [str(root)], 0
    while queue:
        process = _PROC / queue.pop()
        with contextlib.suppress(OSError, ValueError, IndexError):  # it ended meanwhile
            pages += int((process / "statm").read_bytes().split()[1])
            for thread in os.listdir(process / "task"):
                queue += (process / "task" / thread / "children").read_text().split()
    return pages * os.sysconf("SC_PAGE_SIZE")


def give_back_memory() -> None:
    """Have freed memory returned to the system from now on, where this C library can be told to; see mallopt(3).

    Packing and indexing packages in threads otherwise leaves hundreds of MB with a driver that waits for hours.
    """
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        library = ctypes.CDLL(None)
        for parameter in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            library.mallopt(parameter, 128 << 10)
        library.mallopt(_M_ARENA_MAX, 2)


def lacked_memory(text: str) -> bool:
    """Return whether a program's output says that an allocation failed."""
    return bool(_LACKED.search(text))


def was_killed(text: str) -> bool:
    """Return whether a program's output shows that a child was ended by SIGKILL, for whatever reason."""
    return bool(_KILLED.search(text))


def kernel_kills(vmstat: Path = _VMSTAT, cgroup: Path = _CGROUP, own: Path = _OWN_GROUPS) -> int | None:
    """Return the number of OOM kills so far, of the system (proc(5)) and of cgroups; None where nobody counts them."""
    kills = []
    for path in (vmstat, *(group / name for group in _groups(cgroup, own, "memory")
                           for name in ("memory.events", "memory.oom_control"))):  # fmt: skip
        with contextlib.suppress(OSError):
            kills += re.findall(r"^oom_kill (\d+)$", path.read_text(), re.MULTILINE)
    return sum(map(int, kills)) if kills else None


class MemoryWatch:
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
            self._next = time.monotonic() + _SAMPLE_SECONDS
            now = self._machine()
            self._free.append(now.memory_free / now.memory)

    def short(self) -> bool:
        """Return whether memory ran out, or nearly so in the last half minute; True where the kernel does not count."""
        now = self._kills()
        if self._before is None or now is None:
            return True
        return now > self._before or min(self._free, default=1.0) < _LITTLE
