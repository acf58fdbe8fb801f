"""Measure how much of a matrix of configs is compiled: each config alone, and all of them one after the other.

    python benchmarks/matrix.py
    python benchmarks/matrix.py --rebuild [--checkout DIR]... [--rounds N]

The first command rehearses the eight conda-forge configs for linux-64 for one Python. "Alone" starts with an empty
object cache, "in sequence" with the cache of the configs before. Each figure is the CPU time of the compiler launcher:
of ccache and the compilers that it starts. rattler-build gets megabuild's recipe, variants and channel. It needs
ccache.

Its last table is not a measurement but an estimate for PyTorch, from the numbers of objects that
tests/integration/test_shared_objects.py finds and from measured compile times.

The second command measures a rebuild: all eight rehearsals by one command into a new output folder, with everything in
the object cache. It prints wall time, CPU seconds of all processes, and wall x cores / CPU seconds, which is 1.0 if no
core is ever idle. Several checkouts take turns, so that other load on the machine hits all of them; compare ratios.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "recipe" / "pyg" / "common")]
from groundwork.python_version import require  # noqa: E402

require("benchmarks/matrix.py", "python3.12 benchmarks/matrix.py")

from benchmarks.peers import engine_script  # noqa: E402

CONFIGS = (
    "linux_64_cpu", "linux_64_cpu_generic", "linux_64_cuda129", "linux_64_cuda129_generic", "linux_64_cuda130",
    "linux_64_cuda130_generic", "linux_64_cuda134", "linux_64_cuda134_generic",
)  # fmt: skip
PYTHONS = ("3.12",)
#: Named ccache, so that the driver gives it the cache's folder; it notes the CPU time of itself and its children.
LAUNCHER = """#!/bin/sh
{ccache} "$@"
code=$?
times >>{log}
exit $code
"""
#: CPU seconds of PyTorch 2.6's objects with one GPU architecture: C++ of libtorch, the bindings of one Python, all that
#: CUDA adds; and the shares of each that are compiled again (docs/lab/measurements.md).
CORE, BINDINGS, CUDA, PYTHON_COUNT = 6480, 1424, 9420, 5
OTHER_BLAS = (0.03, 0.03, 0.01)
OTHER_CUDA = (0.01, 0.5, 1.0)
#: Of each config in order: whether with CUDA, and what the configs before have in common with it.
GAINS = (
    (False, None), (False, OTHER_BLAS), (True, None), (True, OTHER_BLAS),
    (True, None), (True, OTHER_BLAS), (True, OTHER_CUDA), (True, OTHER_BLAS),
)  # fmt: skip


class Matrix:
    """Builds configs in a folder with a launcher that notes CPU time."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.log = work / "times"
        self.cache = work / "cache"
        (work / "bin").mkdir()
        launcher = work / "bin" / "ccache"
        launcher.write_text(LAUNCHER.format(ccache=shutil.which("ccache"), log=self.log))
        launcher.chmod(0o755)

    def measure(self, script: str) -> float:
        """Run a shell script, and return the CPU seconds of its compiles; ends this program if it fails."""
        self.log.write_text("")
        environment = {
            **os.environ, "MEGABUILD_CACHE": str(self.cache), "TORCH_CCACHE": str(self.work / "bin" / "ccache"),
            "CCACHE_DIR": str(self.work / "plain-objects"),
        }  # fmt: skip
        done = subprocess.run(
            ["sh", "-ec", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            end_after(script, done)
        return sum(map(seconds, self.log.read_text().split()))

    def megabuild(self, config: str, name: str) -> float:
        """Rehearse a config in an output folder by this name."""
        words = [sys.executable, "build-locally.py", config, "--rehearse", "-o", str(self.work / name)]
        return self.measure(" ".join([*words, *(word for python in PYTHONS for word in ("-p", python))]))

    def rattler_build(self, config: str, name: str) -> float:
        """Give the driver's job to rattler-build alone."""
        template = self.work / "template" / f"{config}-rehearsal"
        folder = self.work / name / config
        folder.mkdir(parents=True)
        launcher = folder / "launcher"
        launcher.symlink_to(self.work / "bin" / "ccache")
        return self.measure(engine_script(template, folder, []))

    def forget_objects(self) -> None:
        """Delete all objects."""
        for folder in (self.cache / "objects", self.work / "plain-objects"):
            shutil.rmtree(folder, ignore_errors=True)


def seconds(text: str) -> float:
    """Return the seconds of a time as the shell's ``times`` writes it: ``1m2.5s``."""
    minutes, _, rest = text.partition("m")
    return int(minutes) * 60 + float(rest.rstrip("s"))


def estimate_pytorch() -> tuple[float, float]:
    """Return the CPU seconds of PyTorch's eight configs: the sum of each alone, and in sequence."""
    alone = in_sequence = 0.0
    for cuda, again in GAINS:
        parts = (CORE, BINDINGS * PYTHON_COUNT, CUDA if cuda else 0)
        alone += sum(parts)
        in_sequence += sum(part * share for part, share in zip(parts, again or (1, 1, 1), strict=True))
    return alone, in_sequence


def print_rows(way: str, alone: list[float], in_sequence: list[float]) -> None:
    """Print one row for each config and one for all."""
    rows = [*zip(CONFIGS, alone, in_sequence, strict=True), ("all", sum(alone), sum(in_sequence))]
    for config, one, other in rows:
        print(f"| {way} | {config} | {one:.1f} | {other:.1f} | {other / one:.2f} |", flush=True)


def end_after(command: str, done: subprocess.CompletedProcess[str]) -> NoReturn:
    """End this program with the last lines of a failed command."""
    sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def measure_objects() -> None:
    """Measure the compiles of each config alone and in sequence, and print them."""
    print("| way | config | alone, CPU s | in sequence, CPU s | ratio |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        matrix = Matrix(Path(temporary).resolve())
        for config in CONFIGS:  # makes the channels, and the jobs for rattler-build
            matrix.megabuild(config, "template")
        for way, build in (("megabuild", matrix.megabuild), ("rattler-build", matrix.rattler_build)):
            alone = []
            for config in CONFIGS:
                matrix.forget_objects()
                alone.append(build(config, f"{way}-alone"))
            matrix.forget_objects()
            print_rows(way, alone, [build(config, f"{way}-sequence") for config in CONFIGS])
    before, after = estimate_pytorch()
    print(f"\nPyTorch, {PYTHON_COUNT} Pythons, one GPU architecture, as .ci_support stands (estimate):")
    print(f"{before / 3600:.0f} CPU hours alone, {after / 3600:.0f} in sequence: {after / before:.2f}")


@dataclass(frozen=True, kw_only=True)
class Rebuild:
    """The cost of a rebuild, in seconds."""

    wall: float
    user: float
    system: float

    @property
    def cpu(self) -> float:
        """CPU seconds of the driver and all its children."""
        return self.user + self.system

    @property
    def idleness(self) -> float:
        """Wall time x cores / CPU seconds: 1.0 if no core was idle."""
        return self.wall * len(os.sched_getaffinity(0)) / self.cpu


class Checkout:
    """A checkout with caches of its own."""

    def __init__(self, root: Path, work: Path) -> None:
        self.root = root
        self._work = work

    def rehearse(self, name: str) -> Rebuild:
        """Rehearse all configs by one command into a new output folder, and remove it.

        It ends this program if the rehearsal fails.
        """
        output = self._work / name
        words = [sys.executable, "build-locally.py", *CONFIGS, "--rehearse", "-o", str(output)]
        words += [word for python in PYTHONS for word in ("-p", python)]
        environment = {**os.environ, "MEGABUILD_CACHE": str(self._work / "cache")}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.monotonic()
        done = subprocess.run(
            words, cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )
        wall = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            end_after(" ".join(words), done)
        shutil.rmtree(output)
        return Rebuild(
            wall=wall, user=after.ru_utime - before.ru_utime, system=after.ru_stime - before.ru_stime
        )


def measure_rebuild(roots: list[Path], rounds: int) -> None:
    """Measure rebuilds of checkouts in turns, and print them."""
    print(
        "| checkout | round | wall, s | CPU, s | of these system | wall x cores / CPU | CPU / first checkout's |"
    )
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        checkouts = []
        for number, root in enumerate(roots):
            work = Path(temporary).resolve() / str(number)
            work.mkdir()
            checkouts.append(Checkout(root, work))
        for checkout in checkouts:
            checkout.rehearse("fill")  # makes the environment, the channel and the objects
        for number in range(1, rounds + 1):
            first = 0.0
            for checkout in checkouts:
                cost = checkout.rehearse("again")
                first = first or cost.cpu
                figures = f"{cost.wall:.0f} | {cost.cpu:.1f} | {cost.system:.1f} | {cost.idleness:.2f}"
                print(f"| {checkout.root} | {number} | {figures} | {cost.cpu / first:.2f} |", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rebuild", action="store_true", help="measure a rebuild with everything cached")
    parser.add_argument(
        "--checkout",
        type=Path,
        action="append",
        metavar="DIR",
        help="for --rebuild: checkout to measure; repeatable (default: this one)",
    )
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="for --rebuild (default: 1)")
    options = parser.parse_args()
    if not shutil.which("ccache"):
        sys.exit("ccache is not installed")
    if options.rebuild:
        roots = [root.resolve() for root in options.checkout or [ROOT]]
        measure_rebuild(roots, options.rounds)
    else:
        measure_objects()


if __name__ == "__main__":
    main()
