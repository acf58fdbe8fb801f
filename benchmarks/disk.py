"""Measure a rehearsal's disk space, with the CMake tree outside and inside the engine's work folder.

    python benchmarks/disk.py [CONFIG]

Rehearses a config for one Python and for all Pythons of this machine, twice each: as the driver does (the tree is in
the state folder, `TORCH_TREE`), and as plain rattler-build does (the tree is in the work folder, which the engine
copies into its cache and for every output). A sampler measures all trees below the state folder (folders with PyTorch's
`build/CMakeCache.txt`) four times a second. Columns: the largest tree; the sum of all written copies (a tree that
appears while another one exists is a copy); the peak of all trees; its ratio to the largest tree of the driver's
single-Python run; and the peak of the whole state folder with environments and packages.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS_BETWEEN_SAMPLES = 0.25
#: A program that prints the Python of megabuild's own environment.
ASK_FOR_ENVIRONMENT = """
import runpy, sys
sys.path.insert(0, "scripts")
sys.argv = ["bootstrap", "run"]
runpy.run_module("groundwork.bootstrap", run_name="__main__")
"""


def size(folder: str, seen: set[tuple[int, int]]) -> int:
    """Return the allocated bytes below a folder; hard links count once, and vanishing files do not count."""
    total, folders = 0, [folder]
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


def trees(state: Path) -> list[str]:
    """Return all copies of the CMake tree below a state folder."""
    folders = [state / "tree", *state.glob("out/bld/*/work"), *state.glob("out/build_cache/*/work_dir")]
    return [str(folder) for folder in folders if (folder / "build" / "CMakeCache.txt").exists()]


@dataclass
class Tree:
    """An existing tree: whether it is a copy (it appeared while another one existed), and its largest size in bytes."""

    copy: bool
    largest: int = 0


class Sampler(threading.Thread):
    """Measures the largest tree, all copies of it, and the peaks of all trees and of the whole folder, in bytes.

    If a copy grows because a build runs in it, the growth counts as copied.
    """

    def __init__(self, state: Path) -> None:
        super().__init__(daemon=True)
        self._state = state
        self._done = threading.Event()
        self._trees: dict[str, Tree] = {}
        self.single = self.copied = self.peak = self.everything = 0

    def run(self) -> None:
        while not self._done.wait(SECONDS_BETWEEN_SAMPLES):
            self._sample()

    def _sample(self) -> None:
        seen: set[tuple[int, int]] = set()
        sizes = {folder: size(folder, seen) for folder in trees(self._state)}
        self._trees = {folder: tree for folder, tree in self._trees.items() if folder in sizes}
        for folder, now in sizes.items():
            tree = self._trees.setdefault(folder, Tree(copy=bool(self._trees)))
            if tree.copy:
                self.copied += max(0, now - tree.largest)
            tree.largest = max(tree.largest, now)
            self.single = max(self.single, now)
        together = sum(sizes.values())
        self.peak = max(self.peak, together)
        self.everything = max(self.everything, together + size(str(self._state), seen))

    def stop(self) -> None:
        self._done.set()
        self.join()


def driver(config: str, output: Path, pythons: list[str]) -> list[str]:
    """Return the driver's command for a rehearsal."""
    narrowed = [word for python in pythons for word in ("--python", python)]
    return [
        sys.executable,
        str(ROOT / "build-locally.py"),
        config,
        "--rehearse",
        "-o",
        str(output),
        *narrowed,
    ]


def sampled(state: Path, command: list[str], **environment: str) -> Sampler:
    """Run a command, and measure a state folder while it runs."""
    sampler = Sampler(state)
    sampler.start()
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    sampler.stop()
    if done.returncode:
        sys.exit(
            f"{' '.join(command)}: exit code {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )
    return sampler


def engine_alone(state: Path) -> tuple[list[str], dict[str, str]]:
    """Return command and variables of the driver's last job, changed to build in the engine's work folder."""
    job = json.loads((state / "job.json").read_text())
    job["env"]["TORCH_TREE"] = ""
    job.update(leftovers=[], published=[])
    for folder in ("out", "tree"):
        shutil.rmtree(state / folder, ignore_errors=True)
    plain = state / "plain-job.json"
    plain.write_text(json.dumps(job))
    python = subprocess.run(
        [sys.executable, "-c", ASK_FOR_ENVIRONMENT], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    worker = ROOT / "scripts" / "megabuild" / "engine" / "worker.py"
    return [python, str(worker), str(plain), str(state / "plain-outcome.json")], {
        "PYTHONPATH": str(ROOT / "scripts")
    }


def main() -> None:
    """Print a row for each number of Pythons and each folder of the tree."""
    config = sys.argv[1] if len(sys.argv) > 1 else "linux_64_cuda130"
    base = 0
    heads = ("largest tree", "copied", "peak of trees", "x single tree", "peak of all")
    print(f"{'MB; tree':18} {'Pythons':>7} " + " ".join(f"{head:>13}" for head in heads))
    for pythons in (["3.12"], []):
        with tempfile.TemporaryDirectory() as temporary:
            output = Path(temporary).resolve()
            state = output / f"{config}-rehearsal"
            runs = {"in state folder": sampled(state, driver(config, output, pythons))}
            count = len(json.loads((state / "run.json").read_text())["swaps"])
            command, environment = engine_alone(state)
            runs["in work folder"] = sampled(state, command, **environment)
            for name, sampler in runs.items():
                base = base or sampler.single
                values = (
                    sampler.single,
                    sampler.copied,
                    sampler.peak,
                    sampler.peak / base * 1e6,
                    sampler.everything,
                )
                print(
                    f"{name:18} {count:7} " + " ".join(f"{value / 1e6:13.2f}" for value in values), flush=True
                )


if __name__ == "__main__":
    main()
