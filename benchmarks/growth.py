"""Measure rehearsals of 1, 2 and 4 Pythons, and of 1, 4 and 8 configs: time, disk, and the driver's own share.

    python benchmarks/growth.py

The machine's packages are packed and the object cache is filled by a first run, which is not measured. "Driver" is the
driver's process alone: its CPU seconds, and its memory at the peak.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.12", "3.11", "3.10", "3.13")
CONFIGS = (
    "linux_64_cpu", "linux_64_cuda130", "linux_64_cpu_generic", "linux_64_cuda129", "linux_64_cuda134",
    "linux_64_cuda130_generic", "linux_64_cuda129_generic", "linux_64_cuda134_generic",
)  # fmt: skip
SECONDS_BETWEEN_SAMPLES = 0.2


def disk_usage(folder: Path) -> int:
    """Return the allocated bytes below a folder; hard links count once."""
    seen: dict[tuple[int, int], int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            status = os.lstat(os.path.join(parent, name))
            seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


def rehearse(configs: tuple[str, ...], pythons: tuple[str, ...], output: Path) -> str:
    """Rehearse configs into a folder and return the row of figures; ends this program if the rehearsal fails."""
    narrowed = [word for python in pythons for word in ("-p", python)]
    command = [sys.executable, "build-locally.py", *configs, "--rehearse", "-o", str(output), *narrowed]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    proc, own, memory = Path("/proc", str(process.pid)), 0.0, 0.0
    while process.poll() is None:
        with suppress(OSError, IndexError):  # it has just ended
            fields = (proc / "stat").read_text().rpartition(")")[2].split()
            own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime: proc(5)
            memory = int((proc / "status").read_text().partition("VmHWM:")[2].split()[0]) / 1e3
        time.sleep(SECONDS_BETWEEN_SAMPLES)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    figures = f"{wall:.0f} | {cpu:.0f} | {own:.1f} | {memory:.0f} | {disk_usage(output) / 1e6:.0f}"
    return f"| {len(configs)} | {len(pythons)} | {figures} |"


def main() -> None:
    """Measure and print."""
    print(
        "| configs | Pythons | wall, s | CPU, s | driver's CPU, s | driver's memory, MB | output folder, MB |"
    )
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        rehearse(CONFIGS, PYTHONS, folder / "first")
        for count in (1, 2, 4):
            print(rehearse(CONFIGS[:1], PYTHONS[:count], folder / f"pythons-{count}"), flush=True)
        for count in (1, 4, 8):
            print(rehearse(CONFIGS[:count], PYTHONS[:1], folder / f"configs-{count}"), flush=True)


if __name__ == "__main__":
    main()
