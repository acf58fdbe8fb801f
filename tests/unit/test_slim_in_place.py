"""`megabuild slim` over an environment: what goes, what stays, and the way back."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from slim_world import HOSTILE, SITE, environment, record, tree, wrong_in_records
from test_sizes_cli import call

from command_line.run_command import Invocation
from gpu_tools.slim.backup import hold_backup
from groundwork.errors import (
    BusyError,
    NoGpuError,
    NotUndoneError,
    OutOfSpaceError,
    PreflightError,
    UsageError,
)

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
TORCH = f"{SITE}/torch/lib/libtorch_cuda.so"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("made") / "env")


@pytest.fixture
def env(made: Path, tmp_path: Path) -> Path:
    subprocess.run(["cp", "-a", made, tmp_path], check=True)
    return tmp_path / "env"


def loads(library: Path) -> bool:
    """Say whether a library can be loaded and works, in a process of its own."""
    code = f"import ctypes; assert ctypes.CDLL({str(library)!r}).torch_cuda() == 42"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_plan_touches_nothing_and_says_what_each_step_costs(
    env: Path, invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(env)
    assert call(invocation, "slim", str(env), "--arch-list", "12.0", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert tree(env) == before
    steps = {step["name"]: step for step in document["steps"]}
    assert steps["triton"]["costs"] == ["compile-gpu"]
    assert steps["headers-torch"]["costs"] == ["compile-cpu", "compile-gpu", "extensions"]
    assert steps["nvidia-profiling"]["limits"] == ["profiler"]
    assert document["before"] - document["after"] == sum(step["saves"] for step in document["steps"])
    assert document["before"] == sum(
        path.lstat().st_size for path in env.rglob("*") if path.is_file() and not path.is_symlink()
    )
    assert call(invocation, "slim", str(env)) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_what_is_applied_is_what_was_planned_and_everything_comes_back(
    env: Path, invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(env)
    assert call(invocation, "slim", str(env), "--json") == 0
    planned = json.loads(capsys.readouterr().out)
    assert call(invocation, "slim", str(env), "--apply", "--json") == 0
    applied = json.loads(capsys.readouterr().out)
    assert applied["after"] == planned["after"]
    there = set(tree(env))
    assert not {f"{SITE}/triton", f"{SITE}/torch/include", f"{SITE}/torch/__pycache__"} & there
    assert not {f"{SITE}/nvidia/cu13/lib/lib{one}" for one in ("cusolverMg.so.12", "nvperf_host.so")} & there
    # imported, opened by name, its owner's, and nobody's
    for kept in ("torch/tests/helper.py", "nvidia/cu13/lib/libcudnn_ops.so.9"):
        assert f"{SITE}/{kept}" in there
    assert "share/doc/torch/LICENSE.md" in there
    assert "share/doc/torch/guide.md" not in there
    assert "notes.txt" in there
    assert wrong_in_records(env) == []
    assert loads(env / TORCH)
    assert (env / TORCH).stat().st_mode & 0o777 == 0o555
    assert call(invocation, "slim", str(env), "--undo") == 0
    assert tree(env) == before


def test_libraries_lose_their_symbol_tables(env: Path, invocation: Invocation) -> None:
    size = (env / TORCH).stat().st_size
    assert call(invocation, "slim", str(env), "--apply") == 0
    assert (env / TORCH).stat().st_size < size - 4096
    assert loads(env / TORCH)


def test_keep_leaves_steps_out(env: Path, invocation: Invocation) -> None:
    keep = "compile,extensions,profiler,distributed,byte-code,tests"
    assert call(invocation, "slim", str(env), "--keep", keep, "--apply") == 0
    site = env / SITE
    assert (site / "triton/_C/libtriton.so").exists()
    assert (site / HOSTILE[0]).exists()
    assert (site / "torch/__pycache__/__init__.cpython-311.pyc").exists()
    assert (site / "nvidia/cu13/lib/libnvperf_host.so").exists()
    assert not (site / "nvidia/cu13/lib/libcusolverMg.so.12").exists()


def test_a_second_slimming_begins_with_the_originals(env: Path, invocation: Invocation) -> None:
    before = tree(env)
    assert call(invocation, "slim", str(env), "--keep", "symbols", "--apply") == 0
    assert call(invocation, "slim", str(env), "--keep", "compile", "--apply") == 0
    assert (env / SITE / "triton/__init__.py").exists()
    assert not (env / SITE / "nvidia/cu13/lib/libcusolverMg.so.12").exists()
    assert wrong_in_records(env) == []
    assert call(invocation, "slim", str(env), "--undo") == 0
    assert tree(env) == before


def test_forgetting_gives_the_room_free(
    env: Path, invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(invocation, "slim", str(env), "--apply", "--forget") == 0
    assert not (env / ".megabuild-slim").exists()
    assert call(invocation, "slim", str(env), "--undo") == UsageError.exit_code
    assert "nothing was slimmed in place" in capsys.readouterr().err
    assert loads(env / TORCH)


def test_an_installer_s_cache_is_not_written_to(env: Path, invocation: Invocation, tmp_path: Path) -> None:
    """uv links files from its cache."""
    cached = tmp_path / "cached.so"
    os.link(env / TORCH, cached)
    content, before = cached.read_bytes(), tree(env)
    assert call(invocation, "slim", str(env), "--apply") == 0
    assert cached.read_bytes() == content
    assert call(invocation, "slim", str(env), "--undo") == 0
    assert tree(env) == before
    assert (env / TORCH).samefile(cached)


def test_a_program_that_runs_keeps_its_libraries(env: Path, invocation: Invocation) -> None:
    loaded = ctypes.CDLL(str(env / TORCH))
    assert call(invocation, "slim", str(env), "--apply") == 0
    assert loaded.torch_cuda() == 42
    assert call(invocation, "slim", str(env), "--undo") == 0
    assert loaded.torch_cuda() == 42


def test_what_was_installed_again_since_is_left_alone(env: Path, invocation: Invocation) -> None:
    assert call(invocation, "slim", str(env), "--apply") == 0
    site = env / SITE
    (site / "torch/lib/libtorch_cuda.so").unlink()
    (site / "torch/lib/libtorch_cuda.so").write_bytes(b"a later one")
    shutil.rmtree(site / "torch-2.13.0.dist-info")
    record(env, "torch", "2.14.0", ["torch"])
    assert call(invocation, "slim", str(env), "--undo") == NotUndoneError.exit_code
    assert (site / "torch/lib/libtorch_cuda.so").read_bytes() == b"a later one"
    assert not (site / "torch/include/torch.h").exists()
    assert (site / "triton/__init__.py").exists()


def test_a_full_disk_leaves_everything_as_it_was(
    made: Path, invocation: Invocation, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["cp", "-a", made, small_disk], check=True)
    env = small_disk / "env"
    before = tree(env)
    (small_disk / "filling").write_bytes(bytes(shutil.disk_usage(small_disk).free - 20_000))
    assert call(invocation, "slim", str(env), "--apply") == OutOfSpaceError.exit_code
    assert "nothing was changed" in capsys.readouterr().err
    assert tree(env) == before
    (small_disk / "filling").unlink()
    assert call(invocation, "slim", str(env), "--apply") == 0
    (small_disk / "filling").write_bytes(bytes(shutil.disk_usage(small_disk).free))
    assert call(invocation, "slim", str(env), "--undo") == 0
    assert tree(env) == before


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], check=False).returncode
    ):
        pytest.skip("needs a file system of its own, which root may mount")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


#: Runs the command line and kills itself at the n-th change of the file system; prints how many there were.
KILLED = """
import os, signal, sys
from pathlib import Path
from command_line.run_command import Invocation, outcome
from command_line.main import megabuild
at, env, *arguments = sys.argv[1:]
changes = 0
def changed(event, parameters):
    global changes
    writes = event == "open" and isinstance(parameters[2], int) and parameters[2] & (os.O_WRONLY | os.O_RDWR)
    if writes or event in ("os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.utime"):
        if any(str(one).startswith(env) for one in parameters[:2]):
            changes += 1
            if changes == int(at):
                os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(changed)
run = lambda: megabuild.main(["slim", env, *arguments], standalone_mode=False, obj=invocation)
invocation = Invocation(log_folder=Path(env).parent)
code = outcome(run, invocation)
print(changes, file=sys.stderr)
os._exit(code)
"""


def killed(env: Path, at: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process that kills itself at a change of the file system, counted from 1."""
    command = [sys.executable, "-c", KILLED, str(at), str(env), *arguments]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_killed_at_any_moment_it_loads_and_comes_back(env: Path, invocation: Invocation) -> None:
    before = tree(env)
    whole = killed(env, 0, "--apply")
    assert whole.returncode == 0, whole.stderr
    count = int(whole.stderr.split()[-1])
    assert call(invocation, "slim", str(env), "--undo") == 0
    for moment in range(10):
        at = 3 + (count - 4) * moment // 9
        assert killed(env, at, "--apply").returncode == -signal.SIGKILL
        assert loads(env / TORCH)
        if moment % 2:
            assert call(invocation, "slim", str(env), "--apply") == 0
            assert wrong_in_records(env) == []
        assert call(invocation, "slim", str(env), "--undo") == 0
        assert tree(env) == before, f"killed at change {at} of {count}"


def test_killed_while_undoing_it_is_undone_by_the_next(env: Path, invocation: Invocation) -> None:
    before = tree(env)
    for at in (4, 20, 60):
        assert call(invocation, "slim", str(env), "--apply") == 0
        assert killed(env, at, "--undo").returncode == -signal.SIGKILL
        assert loads(env / TORCH)
        if at > 4:  # some are back, some are not: neither state is one to stay in
            assert call(invocation, "slim", str(env), "--forget") == PreflightError.exit_code
        assert call(invocation, "slim", str(env), "--undo") == 0
        assert tree(env) == before, f"killed at change {at}"


def test_two_at_once(env: Path, invocation: Invocation, capsys: pytest.CaptureFixture[str]) -> None:
    with hold_backup(env):
        assert call(invocation, "slim", str(env), "--apply") == BusyError.exit_code
    assert not (env / ".megabuild-slim").exists()


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (["--keep", "nonsense"], UsageError, "nothing called nonsense"),
        (["--arch-list", "12.0+PTX"], UsageError, "is not a GPU"),
        (["--arch-list", "native"], NoGpuError, "--arch-list 12.0"),
        (["--apply", "--undo"], UsageError, "exclude each other"),
        (["--undo"], UsageError, "nothing was slimmed"),
        (["--forget"], UsageError, "nothing was slimmed"),
    ],
)
def test_mistakes_are_told_in_words(
    env: Path,
    invocation: Invocation,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    error: type[UsageError],
    says: str,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")  # a machine without nvidia-smi
    assert call(invocation, "slim", str(env), *arguments) == error.exit_code
    assert says in capsys.readouterr().err
