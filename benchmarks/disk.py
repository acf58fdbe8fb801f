"""What a rehearsal costs in disk, with the CMake tree outside the engine's work folder and inside.

Rehearses a config for one Python and for all that are here, twice each: as the driver does it (the tree lies in the
state folder, `TORCH_TREE`), and as plain rattler-build does it (the tree lies in the work folder, which the engine
copies into its cache and for every output). A sampler looks at all trees below the state folder (folders that hold
PyTorch's `build/CMakeCache.txt`) four times a second. Printed are the largest tree, what copies of it were written in
all (a tree that appears while there is another one is a copy), the sum of all trees at the peak, and its ratio to the
largest tree of the driver's single-Python run; then the peak of the whole state folder, environments and packages
included.

    python benchmarks/disk.py [CONFIG]
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
#: Prints the private environment's Python.
ASK_FOR_ENVIRONMENT = """
import runpy, sys
sys.path.insert(0, "scripts")
sys.argv = ["bootstrap", "run"]
runpy.run_module("groundwork.bootstrap", run_name="__main__")
"""


def size(folder: str, seen: set[tuple[int, int]]) -> int:
    """Allocated bytes below a folder; hard links count once, what vanishes counts nothing."""
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
    """All copies of the CMake tree below a state folder."""
    places = [state / "tree", *state.glob("out/bld/*/work"), *state.glob("out/build_cache/*/work_dir")]
    return [str(place) for place in places if (place / "build" / "CMakeCache.txt").exists()]


@dataclass
class Tree:
    """A tree that stands at present: whether it appeared beside another one, and its largest size in bytes."""

    copy: bool
    largest: int = 0


class Sampler(threading.Thread):
    """Remembers the largest tree, what copies were made of it, and the peaks of all trees and of the whole folder.

    What a copy grows by, because it is built in, counts as copied.
    """

    def __init__(self, state: Path) -> None:
        super().__init__(daemon=True)
        self._state = state
        self._done = threading.Event()
        self._standing: dict[str, Tree] = {}
        self.single = self.copied = self.peak = self.everything = 0

    def run(self) -> None:
        """Sample until stopped."""
        while not self._done.wait(SECONDS_BETWEEN_SAMPLES):
            self._sample()

    def _sample(self) -> None:
        seen: set[tuple[int, int]] = set()
        sizes = {place: size(place, seen) for place in trees(self._state)}
        self._standing = {place: tree for place, tree in self._standing.items() if place in sizes}
        for place, now in sizes.items():
            tree = self._standing.setdefault(place, Tree(copy=bool(self._standing)))
            if tree.copy:
                self.copied += max(0, now - tree.largest)
            tree.largest = max(tree.largest, now)
            self.single = max(self.single, now)
        together = sum(sizes.values())
        self.peak = max(self.peak, together)
        self.everything = max(self.everything, together + size(str(self._state), seen))

    def stop(self) -> None:
        """End the sampling."""
        self._done.set()
        self.join()


def driver(config: str, output: Path, pythons: list[str]) -> list[str]:
    """The driver's command for a rehearsal."""
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
    """Run a command and watch a state folder meanwhile."""
    sampler = Sampler(state)
    sampler.start()
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    sampler.stop()
    if done.returncode:
        sys.exit(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )
    return sampler


def engine_alone(state: Path) -> tuple[list[str], dict[str, str]]:
    """The same job as the driver's last one, with the tree left to the engine."""
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
    """Measure and print."""
    config = sys.argv[1] if len(sys.argv) > 1 else "linux_64_cuda130"
    base = 0
    heads = ("largest tree", "copied", "peak of trees", "x single tree", "peak of all")
    print(f"{'MB; the tree lies':18} {'Pythons':>7} " + " ".join(f"{head:>13}" for head in heads))
    for pythons in (["3.12"], []):
        with tempfile.TemporaryDirectory() as temporary:
            output = Path(temporary).resolve()
            state = output / f"{config}-rehearsal"
            runs = {"in the state": sampled(state, driver(config, output, pythons))}
            count = len(json.loads((state / "run.json").read_text())["swaps"])
            command, environment = engine_alone(state)
            runs["in the work folder"] = sampled(state, command, **environment)
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
