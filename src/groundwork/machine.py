"""Measures the cores, memory and disk this process may use, within cgroups; and detects exhausted memory."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

_PROC = Path("/proc")
_VMSTAT = Path("/proc/vmstat")
_OWN_GROUPS = Path("/proc/self/cgroup")
_CGROUP = Path("/sys/fs/cgroup")


class _MemoryFiles(NamedTuple):
    """Where a version of cgroups has the memory of a group."""

    controller: str  #: of version 1
    limit: str  #: file
    use: str  #: file
    inactive: str  #: part of the use that the kernel frees on demand, in ``memory.stat``


_MEMORY_FILES = (
    _MemoryFiles("", "memory.max", "memory.current", "inactive_file"),
    _MemoryFiles("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
#: Value of vm.overcommit_memory (proc(5)): allocations fail, and the kernel kills no program for want of memory.
_STRICT = 2
#: A disk with less free is full. File systems without a limit on files report 0 of 0.
_LEAST_BYTES = 50_000_000
_LEAST_FILES = 100
#: Processes with the same id and start times closer than this are the same process: setting the clock moves both.
_SAME_SECONDS = 60.0
#: Free memory is sampled once a second, for half a minute.
_SAMPLE_SECONDS = 1.0
_SAMPLES = 30
#: Free share of memory below which daemons such as earlyoom and systemd-oomd kill; the kernel does not count these.
_LITTLE = 0.1
#: Finds a program's own message of a failed allocation, and a batch system's of a kill for want of memory; not
#: "CUDA error: out of memory", of a GPU's memory, and no source line that handles or throws such errors.
lacked_memory = re.compile(
    r"(?:: |\(|\[Errno 12\] )cannot allocate memory\b|\bvirtual memory exhausted|: memory exhausted|: not enough memory"
    r"|throwing an instance of 'std::bad_alloc'|what\(\): +std::bad_alloc|(?:^|: )std::bad_alloc$"
    r"|out of memory allocating \d+ bytes|(?-i:(?<! error)(?<!exception)(?<!_MEMORY)(?<!Allocation)): out of memory"
    r"|\bmemory allocation (?:failure|error|of \d+ bytes failed)|DefaultCPUAllocator: can't allocate"
    r"|^(?:E +)?(?:\S+\._Array)?MemoryError\b"
    r"|^slurmstepd\S*: error: Detected \d+ oom.kill event|: task \d+: Out Of Memory$",
    re.IGNORECASE | re.MULTILINE,
).search
#: Finds a program's own message of a full disk or quota; not a check for ENOSPC.
lacked_space = re.compile(
    r"(?:^|: |\(|\[Errno \d+\] )(?:No space left on device|Disk quota exceeded)|\bENOSPC: no space"
    r"|\(os error (?:28|122)\)",
    re.IGNORECASE | re.MULTILINE,
).search
#: Finds a program's own message of a file that reached the limit of files' sizes (``ulimit -f``), or the shell's.
reached_file_limit = re.compile(
    r": File too large\b|\[Errno 27\]|\(os error 27\)|: line \d+: +\d+ File size limit exceeded"
).search
#: Finds messages of a child killed by SIGKILL, for any reason.
was_killed = re.compile(
    r"Killed signal terminated program|\b(?:by|to) signal:? 9\b|signal: 9, SIGKILL|<Signals\.SIGKILL: 9>|\bKilled\s{2,}"
    r"|: line \d+: +\d+ Killed\b|(?<!:): Killed(?: \(program .*)?$|^Killed$|\[code=137\]|\bError 137\b"
    r"|non-zero exit status (?:137|-9)\b|exit(?:ed with)? ?(?:code|status)?[:=]? ?(?:137|-9)[.)]*$",
    re.IGNORECASE | re.MULTILINE,
).search


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Resources that this process may use."""

    cores: int  #: within CPU affinity and the cgroup's quota
    memory: int  #: bytes, within the cgroup's limit
    memory_free: int  #: bytes that can be used now without swapping


def measure(cgroup: Path = _CGROUP, own: Path = _OWN_GROUPS) -> Machine:
    """Measure the machine within the limits of this process's cgroups (version 2 or 1) and their ancestors."""
    memory = psutil.virtual_memory()
    total = int(memory.total)
    free = int(memory.available)
    for files in _MEMORY_FILES:
        for group in _groups(cgroup, own, files.controller):
            limit = _number(group / files.limit)
            if 0 < limit < memory.total:
                # the page cache counts as used, but the kernel frees inactive pages on demand
                cached = _field(group / "memory.stat", files.inactive) or 0
                used = max(0, _number(group / files.use) - cached)
                total = min(total, limit)
                free = min(free, max(0, limit - used))
    return Machine(cores=_cores(cgroup, own), memory=total, memory_free=free)


def _cores(cgroup: Path, own: Path) -> int:
    cores = float(_usable_processors())
    quotas = [_read(group / "cpu.max") for group in _groups(cgroup, own)]
    for group in _groups(cgroup, own, "cpu"):
        quotas.append(f"{_read(group / 'cpu.cfs_quota_us')} {_read(group / 'cpu.cfs_period_us')}")
    for quota in quotas:
        match = re.match(r"(\d+)\s+(\d+)", quota)
        if match is not None:
            cores = min(cores, int(match[1]) / int(match[2]))
    return max(1, int(cores + 0.5))


def _usable_processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _groups(cgroup: Path, own: Path, controller: str = "") -> list[Path]:
    """Return the folders of this process's cgroup and its ancestors; version 1 has a tree for each controller."""
    cgroup /= controller
    kind = "0:"
    if controller:
        kind = rf"\d+:(?:[^:\n]*,)?{controller}(?:,[^:\n]*)?"
    match = re.search(rf"^{kind}:/(.*)$", _read(own), re.MULTILINE)
    folder = cgroup
    if match and ".." not in match[1]:
        folder /= match[1]
    return [path for path in (folder, *folder.parents) if path.is_relative_to(cgroup)]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _number(path: Path) -> int:
    """Return the number in a file; 0 for a missing file or the word "max"."""
    text = _read(path).strip()
    if not text.isdecimal():
        return 0
    return int(text)


def _field(path: Path, name: str) -> int | None:
    """Return the number after a name in a file with a name in each line; None if it has none."""
    match = re.search(rf"^{name}:? +(\d+)(?: kB)?$", _read(path), re.MULTILINE)
    if match is None:
        return None
    return int(match[1])


def machine_platform() -> str:
    """Return the conda subdir of this machine, such as "linux-64"."""
    system = platform.system()
    prefix = {"Linux": "linux", "Darwin": "osx"}.get(system, system.lower())
    machine = platform.machine()
    machines = {"x86_64": "64", "amd64": "64", "aarch64": "aarch64", "arm64": "arm64"}
    return f"{prefix}-{machines.get(machine.lower(), machine)}"


def disk_free(folder: Path) -> int:
    """Return the free bytes on the disk of ``folder``, which need not exist yet."""
    return shutil.disk_usage(_existing(folder)).free


def disk_of(folder: Path) -> int:
    """Return the device number of the file system of ``folder``, which need not exist yet."""
    return _existing(folder).stat().st_dev


def forbids_programs(folder: Path) -> bool:
    """Return whether no program can be started from the disk of ``folder`` (noexec); it need not exist yet."""
    return bool(os.statvfs(_existing(folder)).f_flag & os.ST_NOEXEC)


def _existing(folder: Path) -> Path:
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    return existing


def is_full(folder: Path) -> bool:
    """Return whether a folder's file system has almost no bytes or inodes left; one that counts none is not full."""
    status = os.statvfs(folder)
    few_files = status.f_files > 0 and status.f_favail < _LEAST_FILES
    few_bytes = status.f_blocks > 0 and status.f_bavail * status.f_frsize < _LEAST_BYTES
    return few_files or few_bytes


def filled_disk(folder: Path, printed: str) -> bool:
    """Return whether a failed program found no space in an existing folder: by its output, or by the disk."""
    return bool(lacked_space(printed)) or is_full(folder)


def is_running(pid: int, since: float) -> bool:
    """Return whether the process that started at ``since`` is running; True if this user may not inspect it."""
    try:
        return abs(psutil.Process(pid).create_time() - since) < _SAME_SECONDS
    except psutil.AccessDenied:
        return True
    except (psutil.Error, ValueError, OverflowError):
        return False


def tree_memory(root: int) -> int:
    """Return the resident bytes of a process and its descendants, from proc(5); 0 without /proc."""
    pages = 0
    for process in _process_tree(root):
        with contextlib.suppress(OSError, ValueError, IndexError):  # the process ended meanwhile
            pages += int((process / "statm").read_bytes().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def tree_cpu(root: int) -> float:
    """Return the CPU seconds of a process, its descendants, and those that ended, from proc(5); 0 without /proc.

    A process that ends adds its time to that of its parent.
    """
    ticks = 0
    for process in _process_tree(root):
        with contextlib.suppress(OSError, ValueError):  # the process ended meanwhile
            fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return ticks / os.sysconf("SC_CLK_TCK")


def _process_tree(root: int) -> Iterator[Path]:
    """Yield the folders in /proc of a process and its descendants."""
    queue = [str(root)]
    while queue:
        process = _PROC / queue.pop()
        yield process
        with contextlib.suppress(OSError):  # the process ended meanwhile
            for thread in os.listdir(process / "task"):
                queue += (process / "task" / thread / "children").read_text().split()


def kernel_kills(vmstat: Path = _VMSTAT, cgroup: Path = _CGROUP, own: Path = _OWN_GROUPS) -> int | None:
    """Return the number of OOM kills so far, None if they are not counted.

    The system's (proc(5)) includes those in containers; cgroups count their own (version 2: memory.events, version 1:
    memory.oom_control). Only a difference of two answers has a meaning.
    """
    paths = [vmstat]
    paths += [group / "memory.events" for group in _groups(cgroup, own)]
    paths += [group / "memory.oom_control" for group in _groups(cgroup, own, "memory")]
    total = None
    for path in paths:
        kills = _field(path, "oom_kill")
        if kills is not None:
            total = (total or 0) + kills
    return total


def committable(proc: Path = _PROC) -> float:
    """Return the share of memory that programs may still allocate where the kernel promises no more than it has."""
    if _number(proc / "sys" / "vm" / "overcommit_memory") != _STRICT:
        return 1.0
    limit = _field(proc / "meminfo", "CommitLimit")
    used = _field(proc / "meminfo", "Committed_AS")
    if not limit:
        return 1.0
    return max(0, limit - (used or 0)) / limit


class MemoryWatch:
    """Detects whether memory ran out since this object was made."""

    def __init__(self) -> None:
        self._before = kernel_kills()
        self._next = 0.0
        self._free: deque[float] = deque(maxlen=_SAMPLES)

    def tick(self) -> None:
        """Sample free memory, at most once a second."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _SAMPLE_SECONDS
            now = measure()
            self._free.append(min(now.memory_free / now.memory, committable()))

    def short(self) -> bool:
        """Return whether memory ran out, or nearly did in the last 30 seconds; True if OOM kills are not counted."""
        now = kernel_kills()
        if self._before is None or now is None:
            return True
        return now > self._before or min(self._free, default=1.0) < _LITTLE
