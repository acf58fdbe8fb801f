"""Real compilers under small memory limits: a number of jobs that is safe for the heaviest, against sharing by object.

    python benchmarks/memory.py [--gigabytes 4 8 16] [--cores 6] [--speed 0.2] [--ordinary 60] [--heavy 2] [--times 1]

Needs root, cgroups of version 1 or 2 that can be written to, g++ and ninja. Every run gets a memory limit of its own;
every compiler a CPU quota, so that a small machine stands for one with more, slower cores. The objects are g++'s:
ordinary ones include iostream, map and algorithm; heavy ones, one after the other in the middle, hold a table that
takes gigabytes to compile. One of each is compiled first, so that both arms know what they take.

Prints, for each limit and arm: jobs, wall and CPU seconds, the most memory that the group held, kills, and the ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from groundwork.resources.machine import CGROUP, OWN_GROUPS, groups, measure  # noqa: E402
from megabuild.plan.estimate import Estimate  # noqa: E402
from megabuild.plan.limits import Limits, limits  # noqa: E402
from megabuild.plan.object_memory import noted  # noqa: E402
from megabuild.run.launcher import write_launcher  # noqa: E402

GB = 10**9
_RESERVE = GB // 2
_ORDINARY = """#include <algorithm>
#include <iostream>
#include <map>
std::map<int, int> numbers;
void f(int n) { for (auto& one : numbers) std::cout << std::max(n, one.second); }
"""
_MACROS = [
    "#define T0(x) x, x + .125, x + .25, x + .375, x + .5, x + .625, x + .75, x + .875",
    *(
        f"#define T{level}(x) " + ", ".join(f"T{level - 1}(x + {8 ** (level - 1) * n})" for n in range(8))
        for level in range(1, 5)
    ),
]


class Group:
    """A cgroup of either version with a limit."""

    def __init__(self, controller: str, name: str) -> None:
        self._v2 = (CGROUP / "cgroup.controllers").exists()
        own = groups(CGROUP, OWN_GROUPS, controller)
        parent = CGROUP if self._v2 else next(group for group in own if (group / "cgroup.procs").exists())
        self.path = parent / name
        self.path.mkdir()

    def limit_memory(self, size: int) -> None:
        (self.path / ("memory.max" if self._v2 else "memory.limit_in_bytes")).write_text(str(size))

    def facts(self) -> tuple[int, int]:
        """Return the most memory held, and the number of kills."""
        most = self.path / ("memory.peak" if self._v2 else "memory.max_usage_in_bytes")
        events = (self.path / ("memory.events" if self._v2 else "memory.oom_control")).read_text().split()
        return int(most.read_text()), int(events[events.index("oom_kill") + 1])

    def remove(self) -> None:
        for group in [*self.path.glob("*/"), self.path]:
            for _ in range(50):
                try:
                    group.rmdir()
                    break
                except OSError:
                    time.sleep(0.1)


@contextmanager
def group(controller: str, name: str) -> Iterator[Group]:
    """Make a group for a while."""
    made = Group(controller, name)
    try:
        yield made
    finally:
        made.remove()


def write_sources(folder: Path, arguments: argparse.Namespace) -> None:
    """Write sources, ninja's file and the compiler, which a quota slows down."""
    blocks = ", ".join(f"T4({1000.0 * number})" for number in range(arguments.blocks))
    (folder / "heavy.cpp").write_text("\n".join([*_MACROS, f"double table[] = {{ {blocks} }};", ""]))
    (folder / "ordinary.cpp").write_text(_ORDINARY)
    names = [f"o{number}" for number in range(arguments.ordinary)]
    middle = len(names) // 3
    names[middle:middle] = [f"h{number}" for number in range(arguments.heavy)]
    lines = ["rule compile", "  command = $launcher ./g++ -O2 -c $in -o $out", "include launcher.ninja"]
    for name in names:
        lines.append(f"build {name}.o: compile {'heavy' if name[0] == 'h' else 'ordinary'}.cpp")
    (folder / "build.ninja").write_text("\n".join([*lines, ""]))


def write_compiler(folder: Path, quota: Group, speed: float) -> None:
    """Write a g++ that puts itself into a group of its own."""
    (folder / "g++").write_text(f"""#!/bin/sh
mkdir {quota.path}/$$
if [ -e {quota.path}/cpu.max ]; then echo "{int(speed * 100_000)} 100000" >{quota.path}/$$/cpu.max
else echo 100000 >{quota.path}/$$/cpu.cfs_period_us; echo {int(speed * 100_000)} >{quota.path}/$$/cpu.cfs_quota_us; fi
echo $$ >{quota.path}/$$/cgroup.procs
exec g++ "$@"
""")
    (folder / "g++").chmod(0o755)


def launcher(folder: Path, allowed: Limits) -> None:
    """Put what stands before compilers before these."""
    (folder / "tmp").mkdir(exist_ok=True)
    inside = str(folder)
    os.environ["TORCH_CCACHE"] = "none"
    write_launcher(
        folder, allowed, inside=inside, scripts=str(ROOT / "scripts"), python=os.path.realpath(sys.executable),
        folder=inside, shared="file:/nonexistent|read-only", stats=f"{inside}/stats",
    )  # fmt: skip
    (folder / "launcher.ninja").write_text(f"launcher = {inside}/compiler-launcher\n")


def build(folder: Path, jobs: int) -> tuple[float, float, int]:
    """Build everything; return wall and CPU seconds, and ninja's exit code."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        ["ninja", "-C", folder, "-j", str(jobs), "-k", "0"], capture_output=True, check=False
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began, cpu, done.returncode


def calibrate(folder: Path) -> dict[str, int]:
    """Compile one of each, and return what they took."""
    launcher(folder, Limits())
    subprocess.run(["ninja", "-C", folder, "o0.o", "h0.o"], stdout=subprocess.DEVNULL, check=True)
    return {one.name[0]: one.size for one in noted(folder)}


def inside(folder: Path, arm: str, cores: int, took: dict[str, int]) -> None:
    """Run one arm in the group in which this process is, and print its facts."""
    free = measure().memory_free
    if arm == "shared":
        known = {path: took[path[0]] for path in objects(folder)}
        figures = Estimate(
            memory_per_job=took["h"], memory_of_ordinary=took["o"] * 2, memory_of_cuda=took["o"] * 2
        )
        allowed = limits(cores, free, figures, known)
        launcher(folder, allowed)
        jobs, words = cores, f"{cores}, {allowed.words() or 'nothing waits'}"
    else:
        (folder / "launcher.ninja").write_text("launcher =\n")
        jobs = cores if arm == "all cores" else max(1, min(cores, (free - _RESERVE) // took["h"]))
        words = str(jobs)
    wall, cpu, code = build(folder, jobs)
    print(json.dumps({"jobs": words, "wall": wall, "cpu": cpu, "code": code}))


def objects(folder: Path) -> list[str]:
    """Return the names of all objects."""
    lines = (folder / "build.ninja").read_text().splitlines()
    return [line.split()[1].rstrip(":") for line in lines if line.startswith("build ")]


def run(folder: Path, arm: str, size: int, arguments: argparse.Namespace, took: dict[str, int]) -> float:
    """Run one arm with so much memory; print it and return its wall seconds."""
    for path in (*folder.glob("*.o"), *folder.glob(".ninja*")):
        path.unlink()
    shutil.rmtree(folder / "tmp", ignore_errors=True)
    with (
        group("memory", f"megabuild-{os.getpid()}") as limited,
        group("cpu", f"megabuild-{os.getpid()}") as quota,
    ):
        limited.limit_memory(size)
        write_compiler(folder, quota, arguments.speed)
        command = [sys.executable, __file__, "--inside", arm, "--folder", str(folder)]
        command += ["--cores", str(arguments.cores), "--took", json.dumps(took)]
        entering = f'echo $$ >{limited.path}/cgroup.procs && exec "$@"'
        done = subprocess.run(
            ["sh", "-c", entering, "sh", *command], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            sys.exit(f"{arm}: {done.stderr}")
        facts = json.loads(done.stdout)
        most, kills = limited.facts()
    missing = sum(not (folder / name).exists() for name in objects(folder))
    print(
        f"{size / GB:4.0f} GB  {arm:10} {facts['wall']:7.0f} s  {facts['cpu']:5.0f} CPU s  {most / GB:5.1f} GB  "
        f"{kills} kills, {missing} objects missing  jobs: {facts['jobs']}",
        flush=True,
    )
    return float(facts["wall"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[4, 8, 16])
    parser.add_argument("--cores", type=int, default=6)
    parser.add_argument("--speed", type=float, default=0.2, help="share of a core that each compiler gets")
    parser.add_argument("--ordinary", type=int, default=60)
    parser.add_argument("--heavy", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=24, help="size of the heavy table")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument(
        "--unsafe", action="store_true", help="also all cores without sharing, where it is killed"
    )
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--took", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside(arguments.folder, arguments.inside, arguments.cores, arguments.took)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_sources(folder, arguments)
        (folder / "g++").symlink_to(shutil.which("g++") or "g++")
        took = calibrate(folder)
        (folder / "g++").unlink()
        sizes = f"an ordinary object takes {took['o'] / GB:.2f} GB, a heavy one {took['h'] / GB:.2f} GB"
        print(f"load {os.getloadavg()[0]:.1f}; {sizes}", flush=True)
        for size in arguments.gigabytes:
            for _ in range(arguments.times):
                fixed = run(folder, "fixed", int(size * GB), arguments, took)
                shared = run(folder, "shared", int(size * GB), arguments, took)
                print(
                    f"{size:4.0f} GB  shared / fixed: {shared / fixed:.2f}   (load {os.getloadavg()[0]:.1f})"
                )
            if arguments.unsafe:
                run(folder, "all cores", int(size * GB), arguments, took)


if __name__ == "__main__":
    main()
