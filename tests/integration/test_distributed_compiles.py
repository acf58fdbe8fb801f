"""Compiles on other machines: a real icecream, real compilers, the driver's own launcher in front of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from icecream_cluster import Cluster, cluster

import megabuild
from megabuild.plan.distribution import Workers
from megabuild.plan.limits import Limits
from megabuild.plan.object_memory import compiled_elsewhere
from megabuild.run.compile_elsewhere import SCRIPT, packing_trial, write_client
from megabuild.run.launcher import COMPILER_LAUNCHER, GATE, write_launcher

SCRIPTS = Path(megabuild.__file__).parent.parent
FILES = 8
#: Has what differs where a compile is not quite the same: its own path, a name that nothing else has, and OpenMP, which
#: GCC drops without a word where icecream hands it sources that are preprocessed half.
SOURCE = """\
#include <map>
#include <string>
namespace {{ int own(int x) {{ static int sum; return sum += x; }} }}
std::string name{0}() {{ return std::string(__FILE__) + __func__; }}
void many{0}(int* x) {{
#pragma omp parallel for
    for (int i = 0; i < 1000; ++i) x[i] = i;
}}
std::map<std::string, int> made{0} = {{{{"x", own({0})}}}};
"""


@pytest.fixture(scope="module")
def machines() -> Iterator[Cluster]:
    if lacking := [name for name in ("g++", "ninja", "flock") if shutil.which(name) is None]:
        pytest.skip(f"not installed: {', '.join(lacking)}")
    with cluster() as made:
        yield made


class Build:
    """Objects to be made by ninja with as many jobs as there are files, on the first machine."""

    def __init__(self, state: Path, machines: Cluster | None) -> None:
        self.state, self.work, self._machines = state, state / "tree", machines
        for folder in (self.work, state / "tmp"):
            folder.mkdir(parents=True)
        self.packed = state / "tmp" / "icecream"
        if machines is not None:
            write_client(
                state / "icecream",
                inside=str(state / "icecream"),
                packed=str(self.packed),
                gate=str(state / GATE),
                daemon="/run/icecc",
            )
        write_launcher(
            state,
            Limits(),
            inside=str(state),
            scripts=str(SCRIPTS),
            python=sys.executable,
            folder=str(state / "objects"),
            shared="",
            stats=str(state / "stats"),
            elsewhere=str(state / "icecream" / SCRIPT) if machines else "",
        )
        rule = f"{state / COMPILER_LAUNCHER} $cxx $flags -MD -MF $out.d -c $in -o $out"
        flags = f"-fopenmp -ffile-prefix-map={self.work}=/src"
        lines = [f"rule compile\n  command = {rule}\n  depfile = $out.d\n"]
        for number in range(FILES):
            (self.work / f"{number}.cpp").write_text(SOURCE.format(number))
            lines.append(f"build {number}.o: compile {self.work / f'{number}.cpp'}\n")
        (self.work / "build.ninja").write_text(f"cxx = g++\nflags = {flags}\n" + "".join(lines))

    def start(self) -> subprocess.Popen[bytes]:
        command = ["ninja", "-j", str(FILES)]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.state), "CCACHE_DEPEND": "1"}
        placed = self._machines.at_first(command) if self._machines else command
        return subprocess.Popen(placed, cwd=self.work, env=environment, stdout=subprocess.DEVNULL)

    def make(self) -> dict[str, bytes]:
        assert self.start().wait(timeout=180) == 0
        return self.objects()

    def objects(self) -> dict[str, bytes]:
        return {f"{number}.o": (self.work / f"{number}.o").read_bytes() for number in range(FILES)}


def test_machines_without_a_compiler_make_the_same_objects_and_the_cache_has_them(
    machines: Cluster, tmp_path: Path
) -> None:
    alone = Build(tmp_path / "alone", None).make()
    assert machines.workers() == Workers(scheduler=machines.scheduler, machines=2, cores=2)
    together = Build(tmp_path / "together", machines)
    assert together.make() == alone
    counts = compiled_elsewhere(together.state)
    assert sum(counts.values()) == FILES
    assert counts["elsewhere"] >= 2
    (packed,) = together.packed.glob("*/*.tar.gz")
    assert re.fullmatch(r"[0-9a-f]{32}\.tar\.gz", packed.name), "workers know compilers by this name alone"
    if shutil.which("ccache"):
        for made in together.work.glob("*.o"):
            made.unlink()
        (together.state / "stats").unlink()
        assert together.make() == alone
        assert "cache_miss" not in (together.state / "stats").read_text()


def test_a_compiler_that_cannot_be_packed_is_said_before_anything_is_built(
    machines: Cluster, tmp_path: Path
) -> None:
    build = Build(tmp_path / "state", machines)
    script = tmp_path / "g++"  # icecream packs programs, and this is none
    script.write_text('#!/bin/sh\nexec g++ "$@"\n')
    script.chmod(0o755)
    (build.work / "check.cpp").write_text("int main() {}\n")
    trial = packing_trial(str(build.state / "icecream" / SCRIPT), str(build.packed))

    def tried(compiler: Path | str) -> subprocess.CompletedProcess[str]:
        command = machines.at_first(["sh", "-e", "-c", trial])
        environment = {"PATH": os.environ["PATH"], "CXX": str(compiler)}
        return subprocess.run(
            command, cwd=build.work, env=environment, capture_output=True, text=True, check=False
        )

    done = tried(script)
    assert done.returncode == 1
    assert "icecream cannot pack this compiler:\n" in done.stdout
    assert f"'{script}' is no" in done.stdout or "not a binary" in done.stdout
    assert tried("g++").returncode == 0


def test_machines_that_die_cost_time_only(machines: Cluster, tmp_path: Path) -> None:
    """Last, since it leaves none."""
    alone = Build(tmp_path / "alone", None).make()
    build = Build(tmp_path / "together", machines)
    process = build.start()
    end = time.monotonic() + 60
    while not any(build.work.glob("*.o")) and time.monotonic() < end:
        time.sleep(0.05)
    machines.machines[1].kill()
    time.sleep(1)
    machines.machines[2].kill()
    assert process.wait(timeout=180) == 0
    assert build.objects() == alone
    assert machines.workers() == Workers()
