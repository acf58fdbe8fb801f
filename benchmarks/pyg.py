"""Compare building extensions with `pip wheel` and with the driver: `python benchmarks/pyg.py WORK [-e NAME…]`.

Three runs over the same source archives, for the CPU, with the same PyTorch: pip for one extension after the other (as
its users run it: no build isolation, no cache), the driver with an empty object cache, and the driver with a full one.
Measured for each: seconds of wall time, CPU seconds of all processes, and the peak memory of all processes together.
The driver's figures include environments, packages and their tests. PyTorch's own packages are built before,
unmeasured.

WORK keeps the environment, archives and PyTorch's packages for the next time. With `-e spline_conv` it takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "recipe" / "pyg" / "common")]


from groundwork import channel_folder  # noqa: E402
from megabuild.configs.config import load  # noqa: E402
from megabuild.store import published  # noqa: E402

#: The name in the matrix's keys, and PyPI's name, in the order in which pip builds them.
EXTENSIONS = {"scatter": "torch_scatter", "sparse": "torch_sparse", "cluster": "torch_cluster",
              "spline_conv": "torch_spline_conv"}  # fmt: skip
_SAMPLE_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of a run."""

    seconds: float = 0.0  #: wall time
    cpu_seconds: float = 0.0
    peak: int = 0  #: bytes of memory

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            seconds=self.seconds + other.seconds,
            cpu_seconds=self.cpu_seconds + other.cpu_seconds,
            peak=max(self.peak, other.peak),
        )


def measured(command: Sequence[str | Path], log: Path, environ: Mapping[str, str]) -> Cost:
    """Run a command with its output in a log, and return its cost."""
    began, peak, ended = perf_counter(), 0, threading.Event()
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(word) for word in command], stdout=output, stderr=output, stdin=subprocess.DEVNULL,
            env={**os.environ, **environ},
        )  # fmt: skip

        def watch() -> None:
            nonlocal peak
            while not ended.wait(_SAMPLE_SECONDS):
                peak = max(peak, resident(process.pid))

        watching = threading.Thread(target=watch)
        watching.start()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        ended.set()
        watching.join()
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\nexit code {process.returncode}, log: {log}")
    return Cost(seconds=perf_counter() - began, cpu_seconds=usage.ru_utime + usage.ru_stime, peak=peak)


def resident(root: int) -> int:
    """Return the resident bytes of a process and its descendants."""
    total = 0
    try:
        processes = [psutil.Process(root), *psutil.Process(root).children(recursive=True)]
    except psutil.Error:
        return 0
    for process in processes:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total


class Bench:
    """A comparison, with its settings and folders."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.work: Path = arguments.work.absolute()
        self.names: list[str] = arguments.extensions or list(EXTENSIONS)
        self.config = load(ROOT, arguments.config)
        self.python: str = arguments.python
        self.interpreter: str = arguments.interpreter
        self.jobs: int | None = arguments.jobs
        self.memory: float = arguments.memory
        self.logs = self.work / "logs"
        self.sdists = self.work / "sdists"
        self.output: Path = (arguments.output or self.work / "output").absolute()
        self.venv = self.work / "venv" / "bin" / "python"

    def prepare(self) -> None:
        """Make, unmeasured, an environment with PyTorch, the source archives, and PyTorch's packages."""
        self.logs.mkdir(parents=True, exist_ok=True)
        if not (self.work / "venv" / "ready").exists():
            shutil.rmtree(self.work / "venv", ignore_errors=True)
            run([self.interpreter, "-m", "venv", str(self.work / "venv")])
            wanted = [f"torch=={self.config.torch_version}", "setuptools<80", "wheel", "numpy"]
            run([str(self.venv), "-m", "pip", "install", "--quiet", *wanted])
            (self.work / "venv" / "ready").touch()
        for name in self.names:
            if not list(self.sdists.glob(f"{EXTENSIONS[name]}-*.tar.gz")):
                version = self.config.variant[f"pyg_{name}_version"][0]
                options = [
                    "--no-deps",
                    "--no-binary=:all:",
                    "--no-build-isolation",
                    "--dest",
                    str(self.sdists),
                ]
                run(
                    [
                        str(self.venv),
                        "-m",
                        "pip",
                        "download",
                        "--quiet",
                        *options,
                        f"{EXTENSIONS[name]}=={version}",
                    ]
                )
        print("building PyTorch's packages", flush=True)
        measured(self._driver("--pyg", "none"), self.logs / "pytorch.log", self._environment())

    def pip(self) -> Cost:
        """Build the wheels one after another."""
        total = Cost()
        # PyTorch would use this machine's object cache, which may be empty or full
        environ = {"TORCH_NO_COMPILER_WRAPPER": "1", "CCACHE_DISABLE": "1"}
        for name in self.names:
            (archive,) = self.sdists.glob(f"{EXTENSIONS[name]}-*.tar.gz")
            command = [self.venv, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
            target = self.work / "wheels"
            total += measured(
                [*command, "--wheel-dir", target, archive], self.logs / f"pip-{name}.log", environ
            )
        return total

    def driver(self, label: str) -> Cost:
        """Build the extensions' packages with the driver; PyTorch's packages exist."""
        self._forget()
        words = [word for name in self.names for word in ("--extension", name)]
        words += ["--pyg", "source", "--pyg-sources", str(self.sdists)]
        words += ["--jobs", str(self.jobs)] if self.jobs else []
        words += ["--memory", str(self.memory)]
        return measured(self._driver(*words), self.logs / f"driver-{label}.log", self._environment())

    def empty_object_cache(self) -> None:
        """Delete the object caches of install-pyg and of the driver."""
        for name in ("ccache", "objects"):
            shutil.rmtree(self.work / "cache" / name, ignore_errors=True)

    def _forget(self) -> None:
        """Remove the extensions from the channel, and all files that were built for them."""
        state = self.output / self.config.name
        channel = self.output / "packages" / self.config.name
        shutil.rmtree(state / "pyg", ignore_errors=True)
        records = channel / published.RECORDS
        known = json.loads(records.read_text())
        kept = {
            name: record for name, record in known.items() if not name.startswith(("pytorch_", "pyg-lib"))
        }
        records.write_text(json.dumps(kept))
        channel_folder.drop_packages(channel, keep=frozenset(kept))
        channel_folder.index(channel, self.config.platform)

    def _driver(self, *words: str) -> list[str | Path]:
        front: list[str | Path] = [
            sys.executable,
            ROOT / "build-locally.py",
            self.config.name,
            "--python",
            self.python,
        ]
        return [*front, "--output", self.output, *words]

    def _environment(self) -> dict[str, str]:
        return {"MEGABUILD_CACHE": str(self.work / "cache")}


def run(command: Sequence[str]) -> None:
    """Run a command without measuring it."""
    print(" ".join(command[:6]), "…", flush=True)
    subprocess.run(command, check=True)


def line(name: str, cost: Cost, against: Cost | None = None) -> str:
    """Return a row: figures, and their ratio to those of pip."""
    figures = f"{name:<14}{cost.seconds:9.0f} s{cost.cpu_seconds:9.0f} CPU s{cost.peak / 1e9:8.1f} GB"
    if against is None:
        return figures
    ratio, share = against.seconds / cost.seconds, cost.cpu_seconds / against.cpu_seconds
    return f"{figures}{ratio:8.2f} x pip's speed{share:8.2f} x pip's CPU"


def main() -> None:
    """Run the command line: measure, print the rows, and write WORK/result.json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", type=Path, help="folder for all files; later calls reuse it")
    parser.add_argument("-e", "--extension", dest="extensions", action="append", choices=list(EXTENSIONS))
    parser.add_argument(
        "--output", type=Path, help="output folder of the driver, which may have PyTorch's packages"
    )
    parser.add_argument("--config", default="linux_64_cpu_wheel")
    parser.add_argument("--python", default="3.11", help="Python to build for")
    parser.add_argument(
        "--interpreter", default="python3.11", help="interpreter of the same version, for pip"
    )
    parser.add_argument("--jobs", type=int, help="compile jobs of the driver")
    parser.add_argument("--memory", type=float, default=6.0, help="GB that the driver may use  [default: 6]")
    parser.add_argument("--without-pip", action="store_true", help="measure only the driver, cold and warm")
    arguments = parser.parse_args()
    bench = Bench(arguments)
    bench.prepare()
    bench.empty_object_cache()
    cold = bench.driver("cold")
    print(line("driver, cold", cold), flush=True)
    warm = bench.driver("warm")
    print(line("driver, warm", warm), flush=True)
    costs = {"cold": cold, "warm": warm}
    if not arguments.without_pip:
        costs["pip"] = bench.pip()
        print()
        for name in ("pip", "cold", "warm"):
            print(line(name, costs[name], costs["pip"]))
    print(
        f"warm: {100 * warm.seconds / cold.seconds:.1f} % of cold's wall time, "
        f"{100 * warm.cpu_seconds / cold.cpu_seconds:.1f} % of its CPU seconds"
    )
    print(
        f"peak memory of the driver: {max(cold.peak, warm.peak) / 1e9:.1f} of {bench.memory:.1f} GB allowed"
    )
    (bench.work / "result.json").write_text(
        json.dumps({"extensions": bench.names, **{k: asdict(v) for k, v in costs.items()}}, indent=1)
    )


if __name__ == "__main__":
    main()
