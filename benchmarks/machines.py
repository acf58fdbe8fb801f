"""Several machines, simulated and measured: `python3 benchmarks/machines.py COMMAND ...`.

table                         docs/machines.md's figures, by the tables that come with megabuild
measure TREE [CORES [FILES]]  compile C++ files of a configured PyTorch tree with 4, 2 and 1 workers of CORES (0.15) of
                              a core each, and compare with what the simulation says (root; cgroups of version 1)

In ``measure`` a script of a dozen lines stands in for a distributed compiler: it preprocesses within the client's
quota, and compiles within that of a worker that is free. Nothing goes over a network.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts")]

from megabuild.forecast import shipped  # noqa: E402
from megabuild.forecast.machines import Machines, Work, predict, ways  # noqa: E402
from megabuild.forecast.outline import Outline, Package  # noqa: E402
from megabuild.plan.estimate import staging_bytes  # noqa: E402

_PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
#: Of conda-forge's provider: CPU with MKL, generic and aarch64; CUDA 12.9 and 13.0 with MKL and generic, and one of
#: aarch64's.
_EIGHT = ["official-cpu"] * 3 + ["official-cuda"] * 5

_GROUPS = Path("/sys/fs/cgroup/cpu/megabuild-machines")
_COMPILE = """#!/bin/sh -e
exec 3<>{work}/free
echo $$ > {groups}/client/cgroup.procs
g++ {flags} -E "$1" -o "$2.ii"
times > "$2.client"
worker=$(head -c1 <&3)
echo $$ > {groups}/$worker/cgroup.procs
g++ {flags} -c "$2.ii" -o "$2"
times > "$2.all"
printf %s "$worker" >&3
rm "$2.ii"
"""


def _seconds(path: Path) -> float:
    """Return the CPU seconds of a shell's children: the second line of ``times``."""
    words = path.read_text().split()[2:]
    return sum(60 * float(word[:-1].split("m")[0]) + float(word[:-1].split("m")[1]) for word in words)


def _group(name: str, cores: float) -> None:
    (_GROUPS / name).mkdir(parents=True)
    (_GROUPS / name / "cpu.cfs_quota_us").write_text(str(int(cores * 100_000)))


def _ungroup() -> None:
    for folder in [*_GROUPS.glob("*/"), _GROUPS]:
        folder.rmdir()


def _build(work: Path, files: list[Path], flags: str, workers: int, cores: float) -> float:
    """Compile all files and link them; return the seconds on the clock."""
    os.mkfifo(work / "free")
    _GROUPS.mkdir()
    (_GROUPS / "cpu.shares").write_text(
        "2048"
    )  # where others want the machine, quotas are to be had all the same
    _group("client", cores)
    for number in range(workers):
        _group(str(number), cores)
    launcher = work / "compile"
    launcher.write_text(_COMPILE.format(work=work, groups=_GROUPS, flags=flags))
    launcher.chmod(0o755)
    names = [f"{number}.o" for number in range(len(files))]
    rules = [f"rule cc\n command = {launcher} $in $out\nrule ld\n command = ld -r $in -o $out"]
    rules += [f"build {name}: cc {file}" for name, file in zip(names, files, strict=True)]
    (work / "build.ninja").write_text("\n".join([*rules, f"build all.o: ld {' '.join(names)}", ""]))
    free = os.open(work / "free", os.O_RDWR)
    os.write(free, "".join(map(str, range(workers))).encode())
    began = time.monotonic()
    try:
        subprocess.run(["ninja", "--quiet", f"-j{workers + 1}"], cwd=work, check=True)
        return time.monotonic() - began
    finally:
        os.close(free)
        _ungroup()


def measure(tree: Path, cores: float, most: int) -> None:
    """Record what each object takes alone, predict, and measure."""
    build = tree / "build"
    include = [build / "aten/src", tree / "aten/src", build, tree]
    flags = " ".join(["-std=c++17 -O0 -fPIC -w", *(f"-I{folder}" for folder in include)])
    folders = ("c10/core", "c10/core/impl", "c10/util", "aten/src/ATen/detail")
    files = [
        file
        for folder in folders
        for file in sorted((tree / folder).glob("*.cpp"))
        if not subprocess.run(
            ["g++", *flags.split(), "-E", file, "-o", "/dev/null"], stderr=subprocess.DEVNULL
        ).returncode  # it needs nothing that this machine lacks
    ]
    files = files[:most]
    weights: list[float] = []
    share = 0.0
    for workers in (0, 4, 2, 1):
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            took = _build(work, files, flags, workers or 1, cores if workers else 4.0)
            if not workers:
                weights = [_seconds(work / f"{number}.o.all") for number in range(len(files))]
                client = sum(_seconds(work / f"{number}.o.client") for number in range(len(files)))
                share = client / sum(weights)
                print(
                    f"{len(files)} objects, {sum(weights):.1f} CPU seconds, {share:.3f} of them the client's",
                    flush=True,
                )
                continue
        said = predict([one / cores for one in weights], workers=workers, client_share=share, local=False)
        print(
            f"{workers} workers: {said:.0f} s predicted, {took:.0f} s measured, {said / took:.2f}", flush=True
        )


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
        measure(
            Path(sys.argv[2]), float(more[0]) if more else 0.15, int(more[1]) if len(more) > 1 else 10_000
        )
