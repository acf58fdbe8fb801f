"""Measures the cores, memory and disk this process may use, within cgroups; and detects exhausted memory."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import psutil

_CGROUP, _OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
#: For version 2 and 1 of cgroups: controller, files with the limit and the use, and the free part of the use.
_MEMORY_FILES = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
_PROC, _VMSTAT = Path("/proc"), Path("/proc/vmstat")
#: Value of vm.overcommit_memory (proc(5)): allocations fail, and the kernel kills no program for want of memory.
_STRICT = 2
#: A disk with less free is full. File systems without a limit on files report 0 of 0.
_LEAST_BYTES, _LEAST_FILES = 50_000_000, 100
#: Processes with the same id and start times closer than this are the same process: setting the clock moves both.
_SAME_SECONDS = 60.0
#: Free memory is sampled once a second, for half a minute.
_SAMPLE_SECONDS, _SAMPLES = 1.0, 30
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
    total, free = int(memory.total), int(memory.available)
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    for controller, maximum, current, inactive in _MEMORY_FILES:
        for group in _groups(cgroup, own, controller):
            limit = _number(group / maximum)
            if 0 < limit < memory.total:
                # the page cache counts as used, but the kernel frees inactive pages on demand
                cached = re.search(rf"^{inactive} (\d+)$", _read(group / "memory.stat"), re.MULTILINE)
                used = _number(group / current) - (int(cached[1]) if cached else 0)
                total, free = min(total, limit), min(free, max(0, limit - max(0, used)))
    quotas = [_read(group / "cpu.max") for group in _groups(cgroup, own)]
    quotas += [
        f"{_read(group / 'cpu.cfs_quota_us')} {_read(group / 'cpu.cfs_period_us')}"
        for group in _groups(cgroup, own, "cpu")
    ]
    for quota in filter(None, (re.match(r"(\d+)\s+(\d+)", text) for text in quotas)):
        cores = min(cores, int(quota[1]) / int(quota[2]))
    return Machine(cores=max(1, int(cores + 0.5)), memory=total, memory_free=free)


def _groups(cgroup: Path, own: Path, controller: str = "") -> list[Path]:
    """Return the folders of this process's cgroup and its ancestors; version 1 has a tree for each controller."""
    cgroup /= controller
    kind = rf"\d+:(?:[^:\n]*,)?{controller}(?:,[^:\n]*)?" if controller else "0:"
    match = re.search(rf"^{kind}:/(.*)$", _read(own), re.MULTILINE)
    folder = cgroup / match[1] if match and ".." not in match[1] else cgroup
    return [path for path in (folder, *folder.parents) if path.is_relative_to(cgroup)]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _number(path: Path) -> int:
    """Return the number in a file; 0 for a missing file or the word "max"."""
    text = _read(path).strip()
    return int(text) if text.isdecimal() else 0


def machine_platform() -> str:
    """Return the conda subdir of this machine, such as "linux-64"."""
    system, machine = platform.system(), platform.machine()
    machines = {"x86_64": "64", "amd64": "64", "aarch64": "aarch64", "arm64": "arm64"}
    prefix = {"Linux": "linux", "Darwin": "osx"}.get(system, system.lower())
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
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


def is_full(folder: Path) -> bool:
    """Return whether a folder's file system has almost no bytes or inodes left; one that counts none is not full."""
    status = os.statvfs(folder)
    few_files = status.f_files > 0 and status.f_favail < _LEAST_FILES
    few_bytes = status.f_blocks > 0 and status.f_bavail * status.f_frsize < _LEAST_BYTES
    return few_files or few_bytes


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
    queue, pages = [str(root)], 0
    while queue:
        process = _PROC / queue.pop()
        with contextlib.suppress(OSError, ValueError, IndexError):  # the process ended meanwhile
            pages += int((process / "statm").read_bytes().split()[1])
            for thread in os.listdir(process / "task"):
                queue += (process / "task" / thread / "children").read_text().split()
    return pages * os.sysconf("SC_PAGE_SIZE")


def kernel_kills(vmstat: Path = _VMSTAT, cgroup: Path = _CGROUP, own: Path = _OWN_GROUPS) -> int | None:
    """Return the number of OOM kills so far, None if they are not counted.

    The system's (proc(5)) includes those in containers; cgroups count their own (version 2: memory.events, version 1:
    memory.oom_control). Only a difference of two answers has a meaning.
    """
    paths = [vmstat]
    paths += [group / "memory.events" for group in _groups(cgroup, own)]
    paths += [group / "memory.oom_control" for group in _groups(cgroup, own, "memory")]
    kills = [kill for path in paths for kill in re.findall(r"^oom_kill (\d+)$", _read(path), re.MULTILINE)]
    return sum(map(int, kills)) if kills else None


def committable(proc: Path = _PROC) -> float:
    """Return the share of memory that programs may still allocate where the kernel promises no more than it has."""
    if _number(proc / "sys" / "vm" / "overcommit_memory") != _STRICT:
        return 1.0
    amounts = dict(
        re.findall(r"^(CommitLimit|Committed_AS): +(\d+) kB$", _read(proc / "meminfo"), re.MULTILINE)
    )
    limit, used = (int(amounts.get(name, 0)) for name in ("CommitLimit", "Committed_AS"))
    return max(0, limit - used) / limit if limit else 1.0


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
