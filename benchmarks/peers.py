"""Compare megabuild with other ways to build PyTorch for several Pythons: time, disk, repeated compiles.

Builds the scaled model for every Python of this machine in three ways, with one recipe, one channel and one compiler
launcher: megabuild; rattler-build alone; rattler-build alone, once per Python. Each way runs without an object cache,
again after `kill -9` at half of libtorch's objects, and with an empty and the full cache (ccache). "Trees" is the size
of all copies of PyTorch's sources and objects together, at their peak.

    python benchmarks/peers.py

With a clone of conda-forge/pytorch-cpu-feedstock, it also runs that feedstock's build.sh and this recipe's swap on the
CMake graph of PyTorch 2.6, with a compiler that compiles nothing. This takes the test environment, bubblewrap,
mmdebstrap and a Debian mirror:

    python benchmarks/peers.py --feedstock CLONE
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIG = "linux_64_cpu"
SECONDS_BETWEEN_SAMPLES = 0.25
#: Where a tree of PyTorch can be, relative to a way's folder: of megabuild; of rattler-build, and in its cache.
TREES = ("output/*/tree", "*/out/bld/*/work", "*/out/build_cache/*/work_dir")
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "recipe" / "swap"), str(ROOT / "tests" / "integration")]

from groundwork.python_version import require  # noqa: E402

require("benchmarks/peers.py", "python3.12 benchmarks/peers.py")

#: Notes each object that a build asks for, then calls the compiler or the object cache.
LAUNCHER = """#!/bin/sh
for word do
    [ "$last" != -o ] || output=$word
    last=$word
done
case "$output" in */CMakeFiles/*.dir/*|CMakeFiles/*.dir/*) echo "$output" >>{log} ;; esac
{start} "$@"
"""


@dataclass
class Measurement:
    """The cost of one build: seconds, CPU seconds, bytes of all trees at their peak, and the objects it compiled."""

    wall: float = 0.0
    cpu: float = 0.0
    trees: int = 0
    objects: list[str] = field(default_factory=list)

    def repeated(self, *, python_side: bool) -> int:
        """Return how many of libtorch's or of the bindings' objects were compiled more than once."""
        chosen = [name for name in self.objects if bool(python_targets().search(name)) == python_side]
        return len(chosen) - len(set(chosen))


def python_targets() -> re.Pattern[str]:
    """Return a pattern for objects of the Python bindings."""
    from cmake_python_swap.python_swap import PYTHON_TARGETS

    return re.compile(rf"(^|/)CMakeFiles/({'|'.join(PYTHON_TARGETS)})\.dir/")


def size_of_trees(folder: Path) -> int:
    """Return the allocated bytes of all trees below a folder that a build is changing; hard links count once."""
    total, seen = 0, set[tuple[int, int]]()
    trees = [
        path
        for pattern in TREES
        for path in folder.glob(pattern)
        if (path / "build" / "CMakeCache.txt").exists()
    ]
    for parent, _, names in (step for tree in trees for step in os.walk(tree)):
        for name in names:
            try:
                status = os.lstat(os.path.join(parent, name))
            except OSError:
                continue
            if (key := (status.st_dev, status.st_ino)) not in seen:
                seen.add(key)
                total += status.st_blocks * 512
    return total


def python_of(environment: str) -> str:
    """Return the interpreter of this project's environment ``run`` or ``dev``, which is made if it is missing."""
    command = [sys.executable, "-m", "groundwork.bootstrap", environment]
    output = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return output.strip().splitlines()[-1]


@dataclass(kw_only=True)
class Peer:
    """One way to build: a shell script for a new folder, and its object cache."""

    name: str
    work: Path
    script: Callable[[Path], str]

    def measure(self, folder: Path, *, cache: bool = False, kill_at: int = 0) -> Measurement:
        """Build in a folder, and end this program if that fails.

        `cache`: use the way's object cache.
        `kill_at`: kill the build at this many objects.
        """
        result, log = Measurement(), folder / "objects.log"
        folder.mkdir(parents=True, exist_ok=True)
        log.write_text("")
        launcher = folder / "launcher"
        start = f"CCACHE_DIR={self.work}/ccache exec ccache" if cache else "exec"
        launcher.write_text(LAUNCHER.format(log=shlex.quote(str(log)), start=start))
        launcher.chmod(0o755)
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        with (folder / "output.log").open("a") as output:
            process = subprocess.Popen(
                ["sh", "-ec", self.script(folder)],
                cwd=ROOT,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            while (code := process.poll()) is None:
                time.sleep(SECONDS_BETWEEN_SAMPLES)
                result.trees = max(result.trees, size_of_trees(folder))
                if kill_at and log.read_text().count("\n") >= kill_at:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    code = 0
                    break
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if code:
            sys.exit(f"{self.name} failed with exit code {code}: see {folder / 'output.log'}")
        result.wall = time.monotonic() - began
        result.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        result.objects = [re.sub(r".*?(?=CMakeFiles/)", "", line) for line in log.read_text().splitlines()]
        return result


def driver_script(folder: Path, launcher: str = "") -> str:
    """Return megabuild's command."""
    command = [sys.executable, "build-locally.py", CONFIG, "--rehearse", "-o", f"{folder}/output"]
    return f"TORCH_CCACHE={launcher or f'{folder}/launcher'} {shlex.join(command)}"


def engine_script(template: Path, folder: Path, pythons: list[str]) -> str:
    """Return a command that has rattler-build build and test the driver's job, for these Pythons only if not empty."""
    own = folder / "-".join(["py", *pythons])
    own.mkdir(exist_ok=True, parents=True)
    job = json.loads((template / "job.json").read_text())
    variant = json.loads((template / "variant.yaml").read_text())
    if pythons:
        kept = [number for number, spec in enumerate(variant["python"]) if spec.split(".*")[0] in pythons]
        for key in ("python", "is_python_min"):
            variant[key] = [variant[key][number] for number in kept]
        variant |= {"torch_python_base": pythons, "further_python": ["false"]}
    (own / "variant.yaml").write_text(json.dumps(variant))
    job["env"] |= {"TORCH_TREE": "", "TORCH_CCACHE": f"{folder}/launcher"}
    job |= {"output_dir": f"{own}/out", "variant_config": [f"{own}/variant.yaml"], "test": True}
    (own / "job.json").write_text(json.dumps(job))
    worker = ROOT / "src" / "megabuild" / "engine" / "worker.py"
    command = [python_of("run"), str(worker), f"{own}/job.json", f"{own}/outcome.json"]
    return f"PYTHONPATH={ROOT}/src {shlex.join(command)}"


def compare_on_the_model(work: Path) -> None:
    """Print a table of the ways to build the model."""
    # a run of the driver makes the channel, which all ways use, and the job that rattler-build is given
    first = work / "first"
    subprocess.run(
        ["sh", "-ec", driver_script(first, launcher="ccache")], cwd=ROOT, check=True, capture_output=True
    )
    template = first / "output" / f"{CONFIG}-rehearsal"
    variant = json.loads((template / "variant.yaml").read_text())
    pythons = [spec.split(".*")[0] for spec in variant["python"]]
    peers = [
        Peer(name="megabuild", work=work / "a", script=driver_script),
        Peer(
            name="rattler-build", work=work / "b", script=lambda folder: engine_script(template, folder, [])
        ),
        Peer(
            name="rattler-build per Python",
            work=work / "c",
            script=lambda folder: "\n".join(engine_script(template, folder, [python]) for python in pythons),
        ),
    ]
    print(f"{CONFIG} on the model, Pythons {', '.join(pythons)}; the channel is made already\n")
    print("| way | object cache | wall, s | CPU, s | trees, MB | objects compiled again |")
    print("|---|---|---|---|---|---|")
    for peer in peers:
        none = peer.measure(peer.work / "none")
        core, bindings = (
            none.repeated(python_side=python_side) / (len(pythons) - 1) for python_side in (False, True)
        )
        libtorch = {name for name in none.objects if not python_targets().search(name)}
        killed = peer.measure(peer.work / "killed", kill_at=len(libtorch) // 2)
        again = peer.measure(peer.work / "killed")
        over = len(killed.objects) + len(again.objects) - len(none.objects)
        empty = peer.measure(peer.work / "empty", cache=True)
        full = peer.measure(peer.work / "full", cache=True)
        for cache, result, objects in (
            ("none", none, f"for each further Python {core:g} of libtorch, {bindings:g} of the bindings"),
            ("none, after the kill", again, f"{over} of the {len(killed.objects)} before the kill"),
            ("empty", empty, ""),
            ("full", full, ""),
        ):
            figures = f"{result.wall:.0f} | {result.cpu:.0f} | {result.trees / 1e6:.1f}"
            print(f"| {peer.name} | {cache} | {figures} | {objects} |", flush=True)
        shutil.rmtree(peer.work)


def compare_on_the_real_graph(work: Path) -> None:
    """Print how many objects each way compiles again for a further Python, on PyTorch 2.6's CMake graph."""
    from debian_inputs import PACKAGES, debian_inputs
    from feedstock_series import applied, give_libtorch, lay_out, must_build
    from real_graph import RealGraph, prepare

    staging, others = "3.12", ("3.13", "3.11")

    def row(name: str, graph: RealGraph, before: dict[str, int], steps: str) -> None:
        now, core = graph.object_times(), graph.core_times()
        changed = [path for path, date in now.items() if before.get(path) != date]
        ours = sum(path in core for path in changed)
        print(f"| {name} | {steps} | {ours} | {len(changed) - ours} |", flush=True)

    print("\n| way | steps | libtorch's objects | bindings' objects |\n|---|---|---|---|")
    (work / "ours").mkdir(parents=True)
    graph = prepare(work / "ours", debian_inputs(), (staging, *others), PACKAGES, ROOT / "recipe")
    graph.configure(staging)
    graph.compile(staging)
    row("one build per Python", graph, {}, "all")
    for python in others:
        before, swapped = graph.object_times(), graph.swap(python)
        graph.compile(python)
        row(f"megabuild, {python}", graph, before, str(json.loads(swapped.stdout)["steps"]))
    (work / "theirs").mkdir()
    packages = (*PACKAGES, "pip", "packaging", "wheel")
    graph = prepare(
        work / "theirs", debian_inputs(), (staging, *others), packages, work / "theirs" / "recipe"
    )
    lay_out(graph, applied(None, work / "feedstock"), ROOT / "recipe" / "patches" / "debian")
    steps = must_build(graph, staging, "libtorch")
    row("the feedstock, libtorch", graph, {}, str(steps))
    give_libtorch(graph, staging, others)
    for python in (staging, *others):
        before, steps = graph.object_times(), must_build(graph, python, "pytorch")
        row(f"the feedstock, {python}", graph, before, str(steps))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--feedstock", type=Path, metavar="CLONE", help="clone of conda-forge/pytorch-cpu-feedstock"
    )
    feedstock = parser.parse_args().feedstock
    if not shutil.which("ccache"):
        sys.exit("ccache is not installed; all ways use it")
    if feedstock and Path(sys.prefix) != Path(python := python_of("dev")).parent.parent:
        os.execv(python, [python, *sys.argv])
    with tempfile.TemporaryDirectory() as temporary:
        compare_on_the_model(Path(temporary).resolve())
        if feedstock:
            os.environ["MEGABUILD_TEST_FEEDSTOCK"] = str(feedstock.resolve())
            compare_on_the_real_graph(Path(temporary).resolve() / "graph")


if __name__ == "__main__":
    main()
