"""Compilers that share the memory: who waits for whom, what is left when anything is killed, and what is noted.

The compilers are fakes: shells that sleep and say when they begin and end. What real ones do is measured in
benchmarks/memory.py.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import megabuild
from megabuild.engine.compiler_gate import NOTES, UNIT, object_name
from megabuild.plan.limits import Limits
from megabuild.run.launcher import COMPILER_LAUNCHER, write_launcher

SCRIPTS = Path(megabuild.__file__).parent.parent
GATE = SCRIPTS / "megabuild" / "engine" / "compiler_gate.py"
PATIENCE = 60.0
FAKE = """#!/bin/sh
for object; do :; done  # the last word
echo "+ $object" >>"$FAKE_LOG"
sleep "${FAKE_SECONDS:-0.1}"
echo "- $object" >>"$FAKE_LOG"
"""


@dataclass
class Place:
    """A build's place with a fake compiler."""

    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def gate(self) -> list[str]:
        return [sys.executable, "-IS", str(GATE), str(self.folder / "settings"), str(self.folder)]

    def allow(self, limits: Limits) -> None:
        (self.folder / "settings").write_text(limits.text())

    def start(self, name: str, *, seconds: float = 0.1) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*self.gate, str(self.folder / "g++"), "-c", f"{name}.cpp", "-o", name],
            cwd=self.folder,
            env={"PATH": "/usr/bin:/bin", "FAKE_LOG": str(self.log), "FAKE_SECONDS": str(seconds)},
            start_new_session=True,
            stderr=subprocess.DEVNULL,
        )
        self.processes.append(process)
        return process

    def wait(self, processes: Sequence[subprocess.Popen[bytes]], seconds: float = PATIENCE) -> list[int]:
        end = time.monotonic() + seconds
        return [process.wait(timeout=max(0.1, end - time.monotonic())) for process in processes]

    def states(self) -> Iterator[set[str]]:
        """What was running at the same time, at every beginning."""
        running: set[str] = set()
        for line in self.log.read_text().splitlines():
            sign, name = line.split(" ")
            if sign == "-":
                running.discard(name)
            else:
                running.add(name)
                yield set(running)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    (tmp_path / "g++").write_text(FAKE)
    (tmp_path / "g++").chmod(0o755)
    yield made
    for process in made.processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def sharing(light: int, heavy: int, known: dict[str, int]) -> Limits:
    """Limits in units, of which an object that is not known takes one and a heavy one more than two."""
    return Limits(
        light=light * UNIT,
        heavy=heavy * UNIT,
        ordinary=UNIT,
        cuda=2 * UNIT,
        # of known ones the gate expects a little more
        known={name: int(units * UNIT / 1.2) for name, units in known.items()},
    )


def test_never_more_runs_than_there_is_memory_for_and_heavy_ones_leave_room(place: Place) -> None:
    heavy = {f"heavy{number}": 5 for number in range(5)}
    place.allow(sharing(6, 12, heavy))
    names = [*heavy, *(f"light{number}" for number in range(20))]
    codes = place.wait([place.start(name, seconds=0.3 if name in heavy else 0.1) for name in names])
    assert set(codes) == {0}
    states = list(place.states())
    assert len(states) == len(names)
    assert max(sum(heavy.get(name, 1) for name in state) for state in states) <= 18
    assert any(state & heavy.keys() and state - heavy.keys() for state in states)


def test_what_is_larger_than_all_memory_runs_alone_and_what_comes_meanwhile_waits(place: Place) -> None:
    place.allow(sharing(3, 3, {"huge": 50, "heavy": 4}))
    first = [place.start(f"early{number}", seconds=1.0 + 0.3 * number) for number in range(3)]
    time.sleep(0.3)
    huge = place.start("huge", seconds=0.3)
    time.sleep(0.3)
    rest = [place.start(name) for name in ("heavy", "late1", "late2", "late3", "late4")]
    assert set(place.wait([*first, huge, *rest])) == {0}
    states = list(place.states())
    assert [number for number, state in enumerate(states) if "huge" in state] == [3]
    assert states[3] == {"huge"}


def test_small_objects_that_come_later_do_not_take_what_a_heavy_one_waits_for(place: Place) -> None:
    place.allow(sharing(2, 4, {"heavy": 4}))
    early = [place.start(f"long{number}", seconds=4) for number in range(2)]
    time.sleep(0.5)
    # in the heavy ones' part
    early += [place.start(f"short{number}", seconds=1.2 + 0.2 * number) for number in range(4)]
    time.sleep(0.5)
    heavy = place.start("heavy")
    time.sleep(0.3)
    late = [place.start(f"late{number}", seconds=0.1) for number in range(8)]
    assert set(place.wait([*early, heavy, *late])) == {0}
    began = [line[2:] for line in place.log.read_text().splitlines() if line[0] == "+"]
    assert began.index("heavy") == 6


def test_a_heavy_object_does_not_wait_for_ever_while_small_ones_come(place: Place) -> None:
    place.allow(sharing(2, 4, {"heavy": 6}))
    stream = [place.start(f"early{number}", seconds=0.3) for number in range(6)]
    time.sleep(0.3)
    heavy = place.start("heavy")
    while heavy.poll() is None and len(stream) < 60:
        stream.append(place.start(f"light{len(stream)}", seconds=0.2))
        time.sleep(0.1)
    assert heavy.poll() == 0, "small ones came before it for seconds"


def test_whatever_is_killed_nothing_stays_locked(place: Place) -> None:
    chance = random.Random(os.environ.get("MEGABUILD_TEST_SEED", "7"))
    heavy = {f"heavy{number}": 3 for number in range(12)}
    place.allow(sharing(4, 6, {**heavy, "huge": 99}))
    names = [*heavy, "huge", *(f"light{number}" for number in range(12))]
    chance.shuffle(names)
    started = [place.start(name, seconds=chance.uniform(0.05, 0.4)) for name in names]
    for process in chance.sample(started, 12):
        time.sleep(chance.uniform(0, 0.15))
        if chance.random() < 0.5:
            process.kill()  # the gate alone: its compiler is left to itself
        else:
            os.killpg(process.pid, signal.SIGKILL)
    codes = place.wait(started)
    assert {0, -signal.SIGKILL} >= set(codes)
    assert codes.count(0) >= 13
    began = time.monotonic()
    assert place.wait([place.start("huge")]) == [0]  # which needs all there is
    assert time.monotonic() - began < PATIENCE / 4


def test_a_killed_compiler_is_one_that_was_killed(place: Place) -> None:
    place.allow(sharing(4, 0, {}))
    (place.folder / "g++").write_text("#!/bin/sh\nkill -9 $$\n")
    assert place.wait([place.start("a.o")]) == [-signal.SIGKILL]
    assert [line[0] for line in (place.folder / NOTES).read_text().splitlines()] == [">", "-"]


def test_exit_codes_output_and_the_environment_are_the_compilers(place: Place) -> None:
    place.allow(sharing(4, 0, {}))
    program = place.folder / "g++"
    program.write_text('#!/bin/sh\necho "$WORD $*"\necho bad >&2\nexit 3\n')
    done = subprocess.run(
        [*place.gate, str(program), "-c", "a b.cpp", "-o", "x.o"],
        env={"WORD": "said"},
        cwd=place.folder,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, b"said -c a b.cpp -o x.o\n", b"bad\n")
    assert (
        subprocess.run([*place.gate, "no-such-compiler"], check=False, capture_output=True).returncode == 127
    )


def test_what_an_object_took_is_noted_under_its_name(place: Place) -> None:
    place.allow(sharing(4, 0, {}))
    program = place.folder / "g++"
    program.write_text(f"#!{sys.executable}\nbytearray(b'x') * 150_000_000\n")
    assert place.wait([place.start("core/a.cpp.o")]) == [0]
    begun, ended = (place.folder / NOTES).read_text().splitlines()
    sign, size, name, thousandths = ended.split()
    assert begun == f"> 0 {name} 0"
    assert 10 < int(thousandths) < 60_000  # Python's own start, at least
    assert (sign, name) == ("+", "core/a.cpp.o")
    assert 150_000_000 < int(size) < 250_000_000


@pytest.mark.parametrize("how", ["a link", "a pipe", "a folder"])
def test_a_build_that_spoils_the_locks_and_notes_is_compiled_all_the_same(place: Place, how: str) -> None:
    place.allow(sharing(4, 4, {}))
    outside = place.folder / "outside"
    outside.write_text("ours")
    for name in ("compiler-locks", NOTES):
        path = place.folder / name
        if how == "a link":
            path.symlink_to(outside)
        elif how == "a pipe":
            os.mkfifo(path)
        else:
            path.mkdir()
    assert place.wait([place.start("a.o")], seconds=10) == [0]
    assert outside.read_text() == "ours"


@pytest.mark.parametrize(
    ("words", "folder", "name"),
    [
        ("-c a.cpp -o CMakeFiles/x.dir/a.cpp.o", "/b", "CMakeFiles/x.dir/a.cpp.o"),
        ("-o /b/x/../a.o -c a.cpp", "/b", "a.o"),
        ("-c a.cpp -o /w/build/temp.linux-x86_64-cpython-312/csrc/a.o", "/b", "csrc/a.o"),
        ("-c a.cpp -o ../a.o", "/w/build", "/w/a.o"),
        ("a.o -o a.so", "/b", ""),
        ("-E a.cpp -c -o a.o", "/b", ""),
        ("-c a.cpp -o", "/b", ""),
        ("-c a.cpp -o a\n+.o", "/b", ""),
        ("-c a.cpp -o \u00e4.o", "/b", ""),
        (f"-c a.cpp -o {'a' * 301}", "/b", ""),
        ("-c t.cpp -o CMakeFiles/cmTC_12abc.dir/t.cpp.o", "/b/CMakeFiles/CMakeScratch/TryCompile-a1", ""),
    ],
)
def test_names_of_objects(words: str, folder: str, name: str) -> None:
    assert object_name(["g++", *words.split(" ")], folder) == name.encode()


@pytest.mark.skipif(shutil.which("ccache") is None, reason="needs ccache")
def test_what_the_object_cache_has_waits_for_nothing_and_the_gate_is_no_part_of_its_key(
    tmp_path: Path,
) -> None:
    state, work = tmp_path / "state", tmp_path / "work"
    (state / "tmp").mkdir(parents=True)
    work.mkdir()
    limits = sharing(1, 3, {"slow.o": 4})
    write_launcher(
        state,
        limits,
        inside=str(state),
        scripts=str(SCRIPTS),
        python=sys.executable,
        folder=str(tmp_path / "objects"),
        shared="file:/nonexistent|read-only",
        stats=str(tmp_path / "stats"),
    )
    (work / "a.c").write_text("int a;\n")
    words = ["gcc", "-c", "a.c", "-o", "a.o"]
    stats = tmp_path / "stats"

    def compiled(launcher: Path) -> str:
        stats.unlink(missing_ok=True)
        subprocess.run([launcher, *words], cwd=work, check=True, timeout=PATIENCE)
        return stats.read_text()

    plain = tmp_path / "plain"
    text = (state / COMPILER_LAUNCHER).read_text()
    plain.write_text(text.replace("CCACHE_PREFIX=$gate", "CCACHE_PREFIX="))
    plain.chmod(0o755)
    assert "cache_miss" in compiled(plain)
    place = Place(state / "tmp")
    place.allow(limits)
    (state / "tmp" / "g++").write_text(FAKE)
    (state / "tmp" / "g++").chmod(0o755)
    everything = place.start("slow.o", seconds=PATIENCE)
    try:
        while not place.log.exists():
            time.sleep(0.05)
        assert "cache_hit" in compiled(state / COMPILER_LAUNCHER)
    finally:
        os.killpg(everything.pid, signal.SIGKILL)
        everything.wait()
    words[3:] = ["-o", "b.o", "-O1"]  # another compile
    assert "cache_miss" in compiled(state / COMPILER_LAUNCHER)
    assert "cache_hit" in compiled(plain)
    assert "b.o" in (state / "tmp" / NOTES).read_text()
