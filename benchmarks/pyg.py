"""Extensions by plain `pip wheel`, one after another, against this driver: `python benchmarks/pyg.py WORK [-e NAME…]`.

Three runs over the same source archives, for the CPU, with the same PyTorch: pip (what its users do: no build
isolation, no cache), the driver with an empty object cache, the driver again with a full one. Measured for each:
seconds on the clock, CPU seconds of everything started, most memory of all compilers and tools together. The driver's
figures include environments, packages and their tests. PyTorch's own packages are made before and count for nobody.

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
sys.path.insert(0, str(ROOT / "scripts"))


from groundwork import channel_folder  # noqa: E402
from megabuild.configs.config import load  # noqa: E402
from megabuild.plan import published  # noqa: E402

#: PyPI's name and the key of its version in the matrix, in the order in which they are built with pip.
EXTENSIONS = {"scatter": "torch_scatter", "sparse": "torch_sparse", "cluster": "torch_cluster",
              "spline_conv": "torch_spline_conv"}  # fmt: skip
_SAMPLE_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one run took."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            seconds=self.seconds + other.seconds,
            cpu_seconds=self.cpu_seconds + other.cpu_seconds,
            peak=max(self.peak, other.peak),
        )


def measured(command: Sequence[str | Path], log: Path, environ: Mapping[str, str]) -> Cost:
    """Run a command to its end and measure it; its output goes into a log."""
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
        raise SystemExit(f"{' '.join(map(str, command))}\nended with {process.returncode}: {log}")
    return Cost(seconds=perf_counter() - began, cpu_seconds=usage.ru_utime + usage.ru_stime, peak=peak)


def resident(root: int) -> int:
    """Bytes that a process and everything below it use."""
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
    """Everything about one comparison."""

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
        """Make what neither side is measured for: an environment with PyTorch, archives, PyTorch's packages."""
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
        print("making PyTorch's packages", flush=True)
        measured(self._driver("--pyg", "none"), self.logs / "pytorch.log", self._environment())

    def pip(self) -> Cost:
        """Build the wheels one after another."""
        total = Cost()
        # the object cache that PyTorch would put before the compilers by itself is this machine's, and full or not
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
        """Build the packages with the driver, from PyTorch's packages on."""
        self._forget()
        words = [word for name in self.names for word in ("--extension", name)]
        words += ["--pyg", "source", "--pyg-sources", str(self.sdists)]
        words += ["--jobs", str(self.jobs)] if self.jobs else []
        words += ["--memory", str(self.memory)]
        return measured(self._driver(*words), self.logs / f"driver-{label}.log", self._environment())

    def empty_object_cache(self) -> None:
        """Forget all objects."""
        for name in ("ccache", "objects"):  # of install-pyg, and of the driver
            shutil.rmtree(self.work / "cache" / name, ignore_errors=True)

    def _forget(self) -> None:
        """Take the extensions out of the channel and remove everything that was built for them."""
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
    """Run something that is not measured."""
    print(" ".join(command[:6]), "…", flush=True)
    subprocess.run(command, check=True)


def line(name: str, cost: Cost, against: Cost | None = None) -> str:
    """One row: figures, and their ratio to those of pip."""
    figures = f"{name:<14}{cost.seconds:9.0f} s{cost.cpu_seconds:9.0f} CPU s{cost.peak / 1e9:8.1f} GB"
    if against is None:
        return figures
    ratio, share = against.seconds / cost.seconds, cost.cpu_seconds / against.cpu_seconds
    return f"{figures}{ratio:8.2f} x pip's speed{share:8.2f} x pip's CPU"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", type=Path, help="folder for everything; used again the next time")
    parser.add_argument("-e", "--extension", dest="extensions", action="append", choices=list(EXTENSIONS))
    parser.add_argument("--output", type=Path, help="the driver's, perhaps with PyTorch's packages in it")
    parser.add_argument("--config", default="linux_64_cpu_wheel")
    parser.add_argument("--python", default="3.11", help="Python to build for")
    parser.add_argument(
        "--interpreter", default="python3.11", help="the same Python on this machine, for pip"
    )
    parser.add_argument("--jobs", type=int, help="compile jobs of the driver")
    parser.add_argument("--memory", type=float, default=6.0, help="GB that the driver may use  [default: 6]")
    parser.add_argument("--without-pip", action="store_true", help="only the driver, cold and warm")
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
        f"warm takes {100 * warm.seconds / cold.seconds:.1f} % of cold on the clock, "
        f"{100 * warm.cpu_seconds / cold.cpu_seconds:.1f} % of its CPU seconds"
    )
    print(
        f"most memory of the driver's runs: {max(cold.peak, warm.peak) / 1e9:.1f} of {bench.memory:.1f} GB given"
    )
    (bench.work / "result.json").write_text(
        json.dumps({"extensions": bench.names, **{k: asdict(v) for k, v in costs.items()}}, indent=1)
    )


if __name__ == "__main__":
    main()
