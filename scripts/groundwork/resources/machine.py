"""What this process may use of the machine: cores, memory, disk."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

CGROUP = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
#: Version 1 writes a number near 2**63 where there is no limit.
_NO_LIMIT = 1 << 60
_LEAST_BYTES = 50_000_000
#: Of files that can still be made; some file systems have no limit, and report 0 of 0.
_LEAST_FILES = 100


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Resources that this process may use."""

    cores: int  #: Processors we may run on: affinity and the cgroup's quota counted.
    memory: int  #: Bytes of memory, the cgroup's limit counted.
    memory_free: int  #: Bytes that could be used now without swapping.


def measure(cgroup: Path = CGROUP, own: Path = OWN_GROUPS) -> Machine:
    """Measure the machine, within the limits of this process's cgroups and their ancestors."""
    memory = psutil.virtual_memory()
    total, free = int(memory.total), int(memory.available)
    for group in groups(cgroup, own, "memory"):
        limit = _number(group / "memory.max") or _number(group / "memory.limit_in_bytes")
        if limit and limit < min(int(memory.total), _NO_LIMIT):
            used = _number(group / "memory.current") or _number(group / "memory.usage_in_bytes") or 0
            # files read or written lately count as used, but the kernel gives them up for whoever needs memory
            held = max(0, used - _file_cache(group))
            total, free = min(total, limit), min(free, max(limit - held, 0))
    return Machine(cores=_cores(groups(cgroup, own, "cpu")), memory=total, memory_free=free)


def groups(cgroup: Path, own: Path, controller: str) -> list[Path]:
    """Return the folders of this process's groups that may limit something, those above them included.

    Version 2 has one tree; version 1 has one for each controller, mounted under its name.
    """
    places = {cgroup: "/", cgroup / controller: "/"}
    try:
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                places[cgroup] = path
            elif controller in controllers.split(","):
                places[cgroup / controller] = path
    except (OSError, ValueError):
        pass  # no such thing here
    groups = []
    for tree, path in places.items():
        parts = [part for part in path.split("/") if part]
        if ".." in parts:
            parts = []  # outside what this namespace shows
        groups += [tree.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    return groups


def disk_free(folder: Path) -> int:
    """Bytes that can be written at ``folder``, which need not exist yet."""
    return shutil.disk_usage(_existing(folder)).free


def disk_of(folder: Path) -> int:
    """Return what tells the file system of ``folder``, which need not exist yet, from others."""
    return _existing(folder).stat().st_dev


def _existing(folder: Path) -> Path:
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return folder


def is_full(folder: Path) -> bool:
    """Return whether a folder's file system is practically full, of bytes or inodes."""
    status = os.statvfs(folder)
    bytes_free = status.f_bavail * status.f_frsize
    return bytes_free < _LEAST_BYTES or (status.f_files > 0 and status.f_favail < _LEAST_FILES)


def _cores(groups: Sequence[Path]) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [quota for group in groups if (quota := _quota(group))]
    return max(1, min([cores, *(int(quota + 0.5) for quota in quotas)]))


def _quota(group: Path) -> float | None:
    """Processors that a group's quota amounts to, or None without one."""
    try:
        text = (group / "cpu.max").read_text().split()
    except OSError:
        quota, period = _number(group / "cpu.cfs_quota_us"), _number(group / "cpu.cfs_period_us")
        return quota / period if quota and quota > 0 and period else None
    return int(text[0]) / int(text[1]) if text and text[0].isdigit() else None


def _file_cache(group: Path) -> int:
    """Bytes of cached files in a group that nobody maps or has used twice."""
    try:
        lines = (group / "memory.stat").read_text().splitlines()
        values = dict(line.split(" ", 1) for line in lines)
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
