"""What stands before every compiler: the object cache, never only itself, and slots for heavy objects."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_files import program

from groundwork.jobs import Budget
from megabuild.run.launcher import COMPILER_LAUNCHER, HEAVY_GATE, write_launcher

FLASH = "torch_cuda.dir/aten/src/ATen/native/transformers/cuda/flash_attn/kernels/a{}.cu.o"
#: Notes when it begins and ends; the object is its last word.
STUB = 'for object; do :; done\necho "+ $object" >>log\nsleep "${STUB_SECONDS:-0.2}"\necho "- $object" >>log'


def write(state: Path, heavy_jobs: int = 0) -> Path:
    """Write the files of a state folder; return the launcher."""
    (state / "tmp").mkdir(parents=True, exist_ok=True)
    write_launcher(state, inside=str(state), folder=f"{state}/objects", heavy_jobs=heavy_jobs)
    return state / COMPILER_LAUNCHER


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TORCH_CCACHE", "CCACHE_REMOTE_STORAGE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CCACHE_MAXSIZE", "7G")
    return write(tmp_path)


def compiled(launcher: Path, *folders: Path) -> str:
    path = os.pathsep.join([*map(str, folders), "/usr/bin", "/bin"])
    return subprocess.run(
        [launcher, "echo", "compiled"],
        env={"PATH": path},
        stdout=subprocess.PIPE,
        text=True,
        timeout=10,
        check=True,
    ).stdout.strip()


@pytest.mark.skipif(shutil.which("ccache") is None, reason="ccache is not installed")
@pytest.mark.parametrize("setting", ["prefix_command", "prefix_command_cpp", "compiler"])
def test_a_configuration_in_the_cache_s_folder_runs_no_program(
    launcher: Path, tmp_path: Path, setting: str
) -> None:
    # an isolated build can write it, with a path outside
    planted = program(tmp_path / "planted", f'touch "{tmp_path}/ran"\nexec "$@"')
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects" / "ccache.conf").write_text(f"{setting} = {planted}\nlog_file = {tmp_path}/log\n")
    source = tmp_path / "a.c"
    for content in ("int f(void) { return 1; }", "int f(void) { return 1; }", "int f(void) { return 2; }"):
        source.write_text(content)
        subprocess.run([launcher, "cc", "-c", str(source), "-o", str(tmp_path / "a.o")], check=True)
    assert list((tmp_path / "objects").glob("?")), "the cache was used"
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "log").exists()


def test_the_object_cache_is_used_where_there_is_one_and_no_server_s_password_is_shown(
    launcher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin" / "ccache", 'echo "$CCACHE_DIR $CCACHE_MAXSIZE $CCACHE_REMOTE_STORAGE: $*"')
    assert compiled(launcher, tmp_path / "bin") == f"{tmp_path / 'objects'} 7G : echo compiled"
    monkeypatch.setenv("CCACHE_REMOTE_STORAGE", "redis://user:secret@host|read-only")
    assert " redis://user:secret@host|read-only: " in compiled(write(tmp_path), tmp_path / "bin")
    readable = [path for path in tmp_path.iterdir() if path.is_file() and path.stat().st_mode & 0o077]
    assert not [path for path in readable if b"secret" in path.read_bytes()]


def test_another_launcher_takes_the_cache_s_place_but_this_one_never_its_own(
    launcher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "wrapped" / "ccache", f'exec "{launcher}" "$@"')  # by a build, on PATH
    assert compiled(launcher, tmp_path / "wrapped") == "compiled"
    program(tmp_path / "sccache", 'echo "$CCACHE_PREFIX sccache: $*"')
    for name, expected in ((str(tmp_path / "sccache"), "sccache: echo compiled"), ("none", "compiled")):
        monkeypatch.setenv("TORCH_CCACHE", name)
        assert compiled(write(tmp_path)) == expected


@pytest.mark.skipif(shutil.which("ccache") is None, reason="needs ccache")
def test_the_slots_are_no_part_of_the_cache_s_key_and_its_hits_wait_for_none(
    launcher: Path, tmp_path: Path
) -> None:
    (tmp_path / "flash_att.c").write_text("int a;\n")
    words = ["gcc", "-c", "flash_att.c", "-o", "flash_att.cu.o"]
    environ = {**os.environ, "CCACHE_STATSLOG": str(tmp_path / "stats")}
    held = subprocess.Popen(["flock", tmp_path / "tmp" / "heavy-1", "sleep", "60"], start_new_session=True)
    try:
        for heavy_jobs in (0, 1):
            command = [str(write(tmp_path, heavy_jobs)), *words]
            subprocess.run(command, cwd=tmp_path, env=environ, check=True, timeout=30)
    finally:
        os.killpg(held.pid, signal.SIGKILL)
        held.wait()
    assert "cache_hit" in (tmp_path / "stats").read_text()


class Compiles:
    """Compiles of a stub, behind the slots of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[bytes]] = []
        program(folder / "stub", STUB)

    def start(self, name: str, seconds: float = 0.2, path: str = "/usr/bin:/bin") -> subprocess.Popen[bytes]:
        environ = {"PATH": path, "STUB_SECONDS": str(seconds)}
        command = [str(self.folder / HEAVY_GATE), "./stub", "-c", "x.cu", "-o", name]
        self._started.append(subprocess.Popen(command, cwd=self.folder, env=environ, start_new_session=True))
        return self._started[-1]

    def wait(self) -> list[int]:
        return [process.wait(60) for process in self._started]

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def running(self) -> Iterator[set[str]]:
        """Give what ran at the same time, at every beginning and end."""
        now: set[str] = set()
        for line in (self.folder / "log").read_text().splitlines():
            (now.add if line[0] == "+" else now.discard)(line[2:])
            yield set(now)


@pytest.fixture
def compiles(tmp_path: Path) -> Iterator[Compiles]:
    write(tmp_path, heavy_jobs=2)
    made = Compiles(tmp_path)
    yield made
    made.end()


def test_never_more_heavy_objects_are_compiled_than_there_are_slots(compiles: Compiles) -> None:
    heavy = {FLASH.format(number) for number in range(6)}
    light = {f"light{number}.cu.o" for number in range(6)} | {FLASH.format(9).replace(".cu.", ".cpp.")}
    for name in heavy | light:
        compiles.start(name)
    assert set(compiles.wait()) == {0}
    states = list(compiles.running())
    assert max(len(state & heavy) for state in states) == 2
    assert max(len(state & light) for state in states) > 2, "others wait for nothing"


@pytest.mark.parametrize("whole", [True, False])
def test_a_compiler_that_is_killed_frees_its_slot(compiles: Compiles, whole: bool) -> None:
    stuck = [compiles.start(FLASH.format(number), seconds=60 if whole else 1) for number in range(2)]
    log = compiles.folder / "log"
    while not log.exists() or log.read_text().count("+") < 2:
        time.sleep(0.02)
    late = compiles.start(FLASH.format(2))
    time.sleep(0.5)
    assert late.poll() is None
    for process in stuck:
        os.killpg(process.pid, signal.SIGKILL) if whole else process.kill()
    assert late.wait(30) == 0


@pytest.mark.parametrize("how", ["a folder", "gone"])
def test_a_build_that_spoils_the_slots_is_compiled_all_the_same(compiles: Compiles, how: str) -> None:
    if how == "gone":
        (compiles.folder / "tmp").rmdir()
    else:
        (compiles.folder / "tmp" / "heavy-1").mkdir()
    assert compiles.start(FLASH.format(0)).wait(10) == 0


def test_a_file_system_without_locks_holds_no_compile_up(compiles: Compiles) -> None:
    program(compiles.folder / "bin/flock", "echo 'flock: 9: No locks available' >&2; exit 71")
    assert compiles.start(FLASH.format(0), path=f"{compiles.folder}/bin:/usr/bin:/bin").wait(10) == 0


def test_both_numbers_are_halved_where_memory_ran_out() -> None:
    budget = Budget(16, heavy_jobs=3)
    found = []
    while jobs := budget.halve():
        found.append((jobs, budget.heavy_jobs))
    assert found == [(8, 2), (4, 1), (2, 1), (1, 1)]
