"""What this process may use of the machine: cores, memory, disk."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")
#: Version 1 writes a number near 2**63 where there is no limit.
_NO_LIMIT = 1 << 60


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Resources that are really ours.

    Parameters
    ----------
    cores:
        Processors we may run on: affinity and the cgroup's quota counted.
    memory:
        Bytes of memory, the cgroup's limit counted.
    memory_free:
        Bytes that could be used now without swapping.
    """

    cores: int
    memory: int
    memory_free: int


def measure(cgroup: Path = _CGROUP) -> Machine:
    """Look at the machine.

    Parameters
    ----------
    cgroup:
        Where the cgroup file system is mounted.
    """
    memory = psutil.virtual_memory()
    total, free = int(memory.total), int(memory.available)
    limit = _number(cgroup / "memory.max") or _number(cgroup / "memory" / "memory.limit_in_bytes")
    if limit and limit < min(total, _NO_LIMIT):
        used = _number(cgroup / "memory.current") or _number(cgroup / "memory" / "memory.usage_in_bytes") or 0
        # files that were read or written lately count as used, but the kernel gives them up for whoever needs memory
        held = max(0, used - _file_cache(cgroup))
        total, free = limit, min(free, max(limit - held, 0))
    return Machine(cores=_cores(cgroup), memory=total, memory_free=free)


def disk_free(folder: Path) -> int:
    """Bytes that can be written at ``folder``, which need not exist yet."""
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _cores(cgroup: Path) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(cgroup)
    return max(1, min(cores, int(quota + 0.5)) if quota else cores)


def _quota(cgroup: Path) -> float | None:
    """Processors that the cgroup's quota amounts to, or None without one."""
    try:
        text = (cgroup / "cpu.max").read_text().split()
    except OSError:
        quota, period = (
            _number(cgroup / "cpu" / "cpu.cfs_quota_us"),
            _number(cgroup / "cpu" / "cpu.cfs_period_us"),
        )
        return quota / period if quota and quota > 0 and period else None
    return int(text[0]) / int(text[1]) if text and text[0].isdigit() else None


def _file_cache(cgroup: Path) -> int:
    """Bytes of cached files in the cgroup that nobody maps or has used twice."""
    for path, key in (
        (cgroup / "memory.stat", "inactive_file"),
        (cgroup / "memory" / "memory.stat", "total_inactive_file"),
    ):
        try:
            values = dict(line.split(" ", 1) for line in path.read_text().splitlines())
            return int(values.get(key, 0))
        except (OSError, ValueError):
            continue
    return 0


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # absent, or "max"
        return None
