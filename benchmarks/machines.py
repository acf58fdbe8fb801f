"""Several machines, simulated and measured: `python3 benchmarks/machines.py COMMAND ...`.

table                         docs/machines.md's figures, by the tables that come with megabuild
measure TREE [CORES [FILES]]  compile the smallest C++ files of a PyTorch tree, whose generated sources are there, on
                              one machine of CORES (0.5) of a core, by a real icecream on 2 and 4 such machines, and on
                              4 of which one is killed half-way; compare with what the simulation makes of what each
                              object took on the first one (root; icecc; cgroups of version 1; pytest)
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests/integration")]

from icecream_cluster import cluster  # noqa: E402

from megabuild.forecast import shipped  # noqa: E402
from megabuild.forecast.machines import Machines, Work, predict, ways  # noqa: E402
from megabuild.forecast.outline import Outline, Package  # noqa: E402
from megabuild.plan.estimate import staging_bytes  # noqa: E402
from megabuild.plan.limits import Limits  # noqa: E402
from megabuild.plan.object_memory import compiled_elsewhere  # noqa: E402
from megabuild.run.compile_elsewhere import SCRIPT, write_client  # noqa: E402
from megabuild.run.launcher import GATE, write_launcher  # noqa: E402

_PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
#: Of conda-forge's provider: CPU with MKL, generic and aarch64; CUDA 12.9 and 13.0 with MKL and generic, and one of
#: aarch64's.
_EIGHT = ["official-cpu"] * 3 + ["official-cuda"] * 5

_GROUPS = Path("/sys/fs/cgroup/cpu/megabuild-machines")
_FOLDERS = (
    "c10/core", "c10/core/impl", "c10/util", "aten/src/ATen/detail", "aten/src/ATen/core", "aten/src/ATen",
    "torch/csrc/jit/frontend", "torch/csrc/jit/ir", "torch/csrc/jit/passes", "torch/csrc/jit/runtime",
    "aten/src/ATen/native", "aten/src/ATen/native/quantized/cpu",
)  # fmt: skip


def _group(name: str, cores: float) -> Path:
    """Make a group of processes that gets so much of the machine's cores; return the file for their numbers."""
    (_GROUPS / name).mkdir(parents=True, exist_ok=True)
    (_GROUPS / name / "cpu.cfs_quota_us").write_text(str(int(cores * 100_000)))
    return _GROUPS / name / "cgroup.procs"


def _took(command: list[str]) -> tuple[float, bool]:
    """Run a command; return its CPU seconds, and whether it ended well."""
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime, status == 0


def _rules(work: Path, files: list[Path], flags: str, launcher: str) -> list[Path]:
    """Write what ninja is to do, and return the objects."""
    work.mkdir()
    objects = [work / f"{number}.o" for number in range(len(files))]
    lines = [f"rule cc\n command = {launcher} g++ {flags} -c $in -o $out"]
    lines += [f"build {made.name}: cc {file}" for made, file in zip(objects, files, strict=True)]
    (work / "build.ninja").write_text("\n".join([*lines, ""]))
    return objects


def _launcher(state: Path) -> str:
    """Lay out what the driver puts before compilers that other machines run; return its first program."""
    (state / "tmp").mkdir(parents=True)
    inside = str(state)
    write_client(
        state / "icecream", inside=f"{inside}/icecream", packed=f"{inside}/tmp/icecream", gate=f"{inside}/{GATE}",
        daemon="/run/icecc",
    )  # fmt: skip
    write_launcher(
        state, Limits(), inside=inside, scripts=str(ROOT / "scripts"), python=sys.executable, folder="", shared="",
        stats="", elsewhere=f"{inside}/icecream/{SCRIPT}",
    )  # fmt: skip
    return f"{inside}/{GATE}"  # no object cache


def _build(
    work: Path, files: list[Path], flags: str, machines: int, cores: float, *, kill: bool
) -> tuple[float, str]:
    """Compile all files; return the seconds on the clock, and how many objects other machines made."""
    state, several = work.with_name(f"{work.name}-state"), machines > 1
    objects = _rules(work, files, flags, _launcher(state) if several else "")
    client = _group("client", cores)
    command = ["ninja", "--quiet", f"-j{2 * machines}"] if several else ["ninja", "--quiet", "-j1", "-k0"]
    with cluster(machines - 1) if several else nullcontext(None) as made:
        if made is not None:
            command = made.at_first(command)
            for number, machine in enumerate(made.machines):
                group = _group(str(number), cores) if number else client
                group.write_text(str(machine.process.pid))
        if (
            made is not None
        ):  # as the driver's check of the compiler does: it is packed before anything is built
            (work / "check.cpp").touch()
            check = made.at_first([state / "icecream" / SCRIPT, "g++", "-c", "check.cpp", "-o", "check.o"])
            subprocess.run(check, cwd=work, check=True)
        began = time.monotonic()
        place = partial(client.write_text, "0")  # of the process that writes it
        process = subprocess.Popen(command, cwd=work, preexec_fn=place)
        while kill and made is not None and sum(one.exists() for one in objects) < len(objects) // 2:
            time.sleep(0.2)
        if kill and made is not None:
            made.machines[-1].kill()
        if process.wait() and several:
            sys.exit("the compile failed")
        took = time.monotonic() - began
    return took, f"{compiled_elsewhere(state)['elsewhere']} of {len(files)} elsewhere" if several else ""


def _smallest(tree: Path, flags: str, most: int) -> tuple[list[Path], float]:
    """Return the files that are smallest once preprocessed, and the CPU seconds of preprocessing all of them."""

    def preprocessed(file: Path) -> tuple[int, float]:
        """Return the bytes, and the CPU seconds; no bytes for one that needs what this machine lacks."""
        with tempfile.TemporaryDirectory() as name:
            made = Path(name) / "preprocessed"
            took, well = _took(["g++", *flags.split(), "-E", str(file), "-o", str(made)])
            return made.stat().st_size if well else 0, took

    there = [file for folder in _FOLDERS for file in sorted((tree / folder).glob("*.cpp"))]
    with ThreadPoolExecutor(2) as pool:
        found = [(*one, file) for one, file in zip(pool.map(preprocessed, there), there, strict=True)]
    chosen = sorted(one for one in found if one[0])[:most]
    return [file for _, _, file in chosen], sum(took for _, took, _ in chosen)


def _seconds(work: Path) -> dict[str, float]:
    """Return what each object took, on the clock, by ninja's log."""
    rows = [line.split("\t") for line in (work / ".ninja_log").read_text().splitlines()[1:]]
    return {row[3]: (int(row[1]) - int(row[0])) / 1000 for row in rows}


def measure(tree: Path, cores: float, most: int) -> None:
    """Compile on one machine, and predict from what each object took there what several need; measure."""
    build = tree / "build"
    include = [build / "aten/src", tree / "aten/src", build, tree, tree / "torch/csrc/api/include"]
    flags = " ".join(["-std=c++17 -O2 -fopenmp -fPIC -w", *(f"-I{folder}" for folder in include)])
    files, client = _smallest(tree, flags, most)
    print(f"{len(files)} files, preprocessed in {client:.0f} CPU seconds", flush=True)
    weights, first, share = list[float](), list[bytes](), 0.0
    _GROUPS.mkdir(exist_ok=True)
    # where others want the machine, quotas are to be had all the same
    (_GROUPS / "cpu.shares").write_text("8192")
    with tempfile.TemporaryDirectory() as name:
        try:
            for machines, kill in ((1, False), (2, False), (4, False), (4, True)):
                work = Path(name) / f"{machines}{'-killed' * kill}"
                took, where = _build(work, files, flags, machines, cores, kill=kill)
                if not weights:
                    alone = _seconds(work)  # some need headers that this machine lacks
                    weights = [alone[f"{number}.o"] for number in range(len(files)) if f"{number}.o" in alone]
                    objects = [work / f"{number}.o" for number in range(len(files))]
                    files = [file for file, made in zip(files, objects, strict=True) if made.exists()]
                    for number, made in enumerate([made for made in objects if made.exists()]):
                        made.rename(work / f"{number}.o")
                    share = client / cores / sum(weights)
                digests = [
                    hashlib.sha256((work / f"{number}.o").read_bytes()).digest()
                    for number in range(len(files))
                ]
                first = first or digests
                same = sum(one == other for one, other in zip(digests, first, strict=True))
                said = predict(weights, workers=machines - 1, client_share=share)
                how = f"{machines} machines{', one killed half-way' * kill}"
                time_ = f"{said:.0f} s predicted, {took:.0f} s measured, {said / took:.2f}"
                bytes_ = f"{same} of {len(files)} with the bytes of the first"
                print(f"{how}: {time_}; {where}; {bytes_}; load {os.getloadavg()[0]:.1f}", flush=True)
        finally:
            for folder in [*_GROUPS.glob("*/"), _GROUPS]:
                folder.rmdir()


def work(kind: str) -> Work:
    """Return a whole run of a kind, on a machine that has nothing of it; without PyTorch Geometric's extensions."""
    flavour = "pytorch-gpu" if "cuda" in kind else "pytorch-cpu"
    pythons = _PYTHONS if kind.startswith("official") else _PYTHONS[:-1]
    first = [Package(name=name, label=f"{name} 1") for name in ("libtorch", flavour)]
    made = (*first, *(Package(name="pytorch", label=f"pytorch 1 {one}", python=one) for one in pythons))
    return Work(
        outline=Outline(packages=made, staged=True), known=shipped.known(kind), tree=staging_bytes(kind)
    )


def table() -> None:
    """Print hours, and machine hours in brackets, for docs/machines.md."""
    for title, kinds in (
        ("CPU", ["official-cpu"]),
        ("CUDA", ["official-cuda"]),
        ("all eight", _EIGHT),
    ):
        works = [work(kind) for kind in kinds]
        counts = (1, 2, 4, 8, 16)
        print(f"\n| {title} | {' | '.join(map(str, counts))} |\n|---|{'---|' * len(counts)}")
        for cores in (4, 16, 64):
            found = [
                {way.name: way for way in ways(works, Machines(count=count, cores=cores))} for count in counts
            ]
            for name in dict.fromkeys(name for row in found for name in row if "cache" not in name):
                cells = (
                    f"{row[name].seconds / 3600:.1f} ({row[name].machine_seconds / 3600:.1f})"
                    if name in row and (name not in found[0] or row is found[0])
                    else ""
                    for row in found
                )
                print(f"| {cores} cores, {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    if sys.argv[1] == "table":
        table()
    if sys.argv[1] == "measure":
        more = sys.argv[3:]
        measure(Path(sys.argv[2]), float(more[0]) if more else 0.5, int(more[1]) if len(more) > 1 else 10_000)
