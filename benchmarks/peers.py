"""Compare megabuild with other ways to build PyTorch for several Pythons: time, disk, repeated compiles.

Builds the scaled model for every Python of this machine in three ways, with one recipe, one channel and one compiler
launcher (ccache): megabuild; rattler-build alone; rattler-build alone, once per Python. Each way runs with an empty
object cache, with the full one, and again after `kill -9` at half its time.

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
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIG = "linux_64_cpu"
SECONDS_BETWEEN_SAMPLES = 1.0
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "recipe" / "swap"), str(ROOT / "tests" / "integration")]

#: Notes each object that a build asks for, then calls the object cache.
LAUNCHER = """#!/bin/sh
for word do
    [ "$last" != -o ] || output=$word
    last=$word
done
case "$output" in */CMakeFiles/*.dir/*|CMakeFiles/*.dir/*) echo "$output" >>{log} ;; esac
CCACHE_DIR={cache} exec ccache "$@"
"""


@dataclass
class Measurement:
    """The cost of one build: seconds, CPU seconds, bytes of disk at most, and the objects it compiled."""

    wall: float = 0.0
    cpu: float = 0.0
    disk: int = 0
    objects: list[str] = field(default_factory=list)

    def repeated(self, *, python_side: bool) -> int:
        """Return how many of libtorch's or of the bindings' objects were compiled more than once."""
        chosen = [name for name in self.objects if bool(python_targets().search(name)) == python_side]
        return len(chosen) - len(set(chosen))


def python_targets() -> re.Pattern[str]:
    """Return a pattern for objects of the Python bindings."""
    from cmake_python_swap.python_swap import PYTHON_TARGETS

    return re.compile(rf"(^|/)CMakeFiles/({'|'.join(PYTHON_TARGETS)})\.dir/")


def disk_usage(folder: Path) -> int:
    """Return the allocated bytes below a folder that a build is changing; hard links count once."""
    total, seen, folders = 0, set[tuple[int, int]](), [str(folder)]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:
            continue
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif (key := (status.st_dev, status.st_ino)) not in seen:
                seen.add(key)
                total += status.st_blocks * 512
    return total


def python_of(environment: str) -> str:
    """Return the interpreter of this project's environment ``run`` or ``dev``, which is made if it is missing."""
    command = [sys.executable, "-m", "groundwork.bootstrap", environment]
    output = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT / "scripts")},
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

    def measure(self, *, folder: Path, kill_after: float = 0.0) -> Measurement:
        """Build in a folder; ``kill_after``: kill everything after so many seconds. Ends the program on failure."""
        result, log = Measurement(), folder / "objects.log"
        folder.mkdir(parents=True, exist_ok=True)
        log.write_text("")
        launcher = folder / "launcher"
        launcher.write_text(
            LAUNCHER.format(log=shlex.quote(str(log)), cache=shlex.quote(str(self.work / "ccache")))
        )
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
            ended = threading.Event()
            sampler = threading.Thread(target=self._sample, args=(folder, ended, result))
            sampler.start()
            try:
                code = process.wait(kill_after or None)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = 0
            ended.set()
            sampler.join()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if code:
            sys.exit(f"{self.name} failed with exit code {code}: see {folder / 'output.log'}")
        result.wall = time.monotonic() - began
        result.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        result.objects = [re.sub(r".*?(?=CMakeFiles/)", "", line) for line in log.read_text().splitlines()]
        return result

    @staticmethod
    def _sample(folder: Path, ended: threading.Event, result: Measurement) -> None:
        while not ended.wait(SECONDS_BETWEEN_SAMPLES):
            result.disk = max(result.disk, disk_usage(folder))


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
    worker = ROOT / "scripts" / "megabuild" / "engine" / "worker.py"
    command = [python_of("run"), str(worker), f"{own}/job.json", f"{own}/outcome.json"]
    return f"PYTHONPATH={ROOT}/scripts {shlex.join(command)}"


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
    print("| way | object cache | wall, s | CPU, s | disk, MB | objects compiled again |")
    print("|---|---|---|---|---|---|")
    for peer in peers:
        empty = peer.measure(folder=peer.work / "empty")
        full = peer.measure(folder=peer.work / "full")
        shutil.rmtree(peer.work / "ccache")
        killed = peer.measure(folder=peer.work / "killed", kill_after=empty.wall / 2)
        again = peer.measure(folder=peer.work / "killed")
        core, bindings = (
            empty.repeated(python_side=python_side) / (len(pythons) - 1) for python_side in (False, True)
        )
        over = len(killed.objects) + len(again.objects) - len(empty.objects)
        for cache, result, extra in (
            ("empty", empty, f"for each further Python {core:g} of libtorch, {bindings:g} of the bindings"),
            ("full", full, ""),
            ("as the kill left it", again, f"after the kill {over} of {len(empty.objects)}"),
        ):
            print(
                f"| {peer.name} | {cache} | {result.wall:.0f} | {result.cpu:.0f} | {result.disk / 1e6:.0f} | {extra} |",
                flush=True,
            )
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
