"""What a rehearsal costs in disk, with the CMake tree outside the engine's work folder and inside.

Rehearses a config for one Python and for all that are here, twice each: as the driver does it (the tree lies in the
state folder, `TORCH_TREE`), and as plain rattler-build does it (the tree lies in the work folder, which the engine
copies into its cache and for every output). A sampler adds up all copies of the tree below the output folder: folders
that hold PyTorch's `build/CMakeCache.txt`. Printed are bytes of the tree itself, of all its copies at the peak, and
their ratio to the tree of a single-Python build.

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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS_BETWEEN_SAMPLES = 0.25
#: Prints the private environment's Python.
ASK_FOR_ENVIRONMENT = """
import runpy, sys
sys.path.insert(0, "scripts")
sys.argv = ["bootstrap", "run"]
runpy.run_module("megabuild.bootstrap", run_name="__main__")
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


class Sampler(threading.Thread):
    """Remembers the largest sum of all copies of the tree, and the largest single one."""

    def __init__(self, state: Path) -> None:
        super().__init__(daemon=True)
        self._state = state
        self._done = threading.Event()
        self.peak = self.single = 0

    def run(self) -> None:
        """Sample until stopped."""
        while not self._done.wait(SECONDS_BETWEEN_SAMPLES):
            seen: set[tuple[int, int]] = set()
            sizes = [size(tree, seen) for tree in trees(self._state)]
            self.peak = max(self.peak, sum(sizes))
            self.single = max([self.single, *sizes])

    def stop(self) -> None:
        """End the sampling."""
        self._done.set()
        self.join()


def driver(config: str, output: Path, pythons: list[str]) -> list[str]:
    """The driver's command for a rehearsal."""
    narrowed = [word for python in pythons for word in ("--python", python)]
    return [sys.executable, str(ROOT / "build-locally.py"), config, "--rehearse", "-o", str(output), *narrowed]


def sampled(state: Path, command: list[str], **environment: str) -> Sampler:
    """Run a command and watch a state folder meanwhile."""
    sampler = Sampler(state)
    sampler.start()
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    sampler.stop()
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
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
    return [python, str(worker), str(plain), str(state / "plain-outcome.json")], {"PYTHONPATH": str(ROOT / "scripts")}


def main() -> None:
    """Measure and print."""
    config = sys.argv[1] if len(sys.argv) > 1 else "linux_64_cuda130"
    base = 0
    print(f"{'tree':18} {'Pythons':>7} {'tree MB':>8} {'peak of copies MB':>18} {'x single tree':>14}")
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
                megabytes = [value / 1e6 for value in (sampler.single, sampler.peak)]
                print(f"{name:18} {count:7} {megabytes[0]:8.1f} {megabytes[1]:18.1f} {sampler.peak / base:14.2f}")


if __name__ == "__main__":
    main()
