"""Three configs that share no objects, built side by side: killed at any moment, interrupted, with one that fails
or runs out of memory.

Rehearsals on the host. Moments are random; MEGABUILD_TEST_SEED gives others, MEGABUILD_TEST_KILLS another number.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from tiny import wait_for

from groundwork.errors import OutOfMemoryError
from groundwork.files import FileLock

CONFIGS = ("linux_64_cpu", "linux_64_cuda129", "linux_64_cuda130")
JOBS = 4
KILLS = int(os.environ.get("MEGABUILD_TEST_KILLS", "20"))
_SECONDS = 3600.0
#: Folders of the objects that a swap compiles for the next Python.
_BINDINGS = re.compile(r"python|functorch|/(?:_C|_nccl_ep|nnapi_backend)\.dir/")
#: How long after the command's death its compilers and tests may live on.
_MERCY_SECONDS = 15.0
pytestmark = pytest.mark.long


def start(
    repository: Path, output: Path, log: Path, *options: str, group: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a build of all configs; ``group``: the folder of the cgroup in which it runs."""
    command = [
        sys.executable,
        "build-locally.py",
        *CONFIGS,
        "--rehearse",
        "--engine",
        "host",
        "--pyg",
        "none",
    ]
    command += ["-p", "3.11", "-j", str(JOBS), "-o", str(output), *options]
    if group is not None:
        command = ["/bin/sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', str(group), *command]
    with log.open("ab") as stream:
        return subprocess.Popen(
            command,
            cwd=repository,
            env={
                **os.environ,
                "TORCH_CCACHE": "none",
            },  # with the objects of former runs, nothing is compiled
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )


def processes_of(output: Path) -> list[psutil.Process]:
    """Return the processes that a build in this output folder has started."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = [*process.cmdline(), *process.environ().values(), process.cwd()]
            if process.pid != os.getpid() and any(str(output) in word for word in words):
                found.append(process)
    return found


def compilers(output: Path) -> int:
    """Return the number of compilers that run for a build of packages, not for a test of one."""
    count = 0
    for process in processes_of(output):
        with suppress(psutil.Error):
            is_compiler = process.name() in ("cc1plus", "cc1")
            count += is_compiler and "/tests/" not in process.cwd()
    return count


def has_begun_or_ended(build: subprocess.Popen[bytes], output: Path) -> bool:
    """Return whether a build compiles, or has ended."""
    return compilers(output) > 0 or build.poll() is not None


def core_steps(output: Path) -> dict[str, tuple[str, str]]:
    """Return start and end of the last run of each step that compiles a core object, from ninja's logs."""
    steps: dict[str, tuple[str, str]] = {}
    for log in output.glob("*/tree/build/.ninja_log"):
        for line in log.read_text(errors="replace").splitlines()[1:]:
            cells = line.split("\t")
            if len(cells) == 5 and cells[3].endswith(".o") and not _BINDINGS.search(cells[3]):
                steps[f"{log.parents[2].name} {cells[3]}"] = (cells[0], cells[1])
    return steps


@pytest.fixture
def output(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "output"
    for process in processes_of(tmp_path / "output"):
        with suppress(psutil.Error):
            process.kill()


def test_killed_at_any_moment_they_leave_no_process_and_compile_nothing_twice(
    repository: Path, tmp_path: Path, output: Path
) -> None:
    chance = random.Random(int(os.environ.get("MEGABUILD_TEST_SEED", "20261129")))
    log = tmp_path / "log"
    most = 0
    finished: dict[str, tuple[str, str]] = {}
    killed = 0
    for _ in range(3 * KILLS):
        if killed == KILLS:
            break
        build = start(repository, output, log)
        if killed % 2:  # the other half is killed wherever the start has come to
            assert wait_for(partial(has_begun_or_ended, build, output), _SECONDS)
        until = time.monotonic() + chance.uniform(1.0, 60.0)
        while time.monotonic() < until and build.poll() is None:
            most = max(most, compilers(output))
            time.sleep(0.1)
        if build.poll() is not None:
            assert build.returncode == 0, log.read_text()[-5000:]
            shutil.rmtree(output)  # everything was built before the moment came
            finished = {}
            continue
        build.kill()
        build.wait()
        assert wait_for(lambda: not processes_of(output), _MERCY_SECONDS), processes_of(output)
        steps = core_steps(output)
        again = [name for name, times in finished.items() if steps.get(name, times) != times]
        assert not again, f"compiled twice before kill {killed}"
        finished = steps
        print(f"kill {killed}: {len(finished)} core objects, at most {most} compilers", flush=True)
        killed += 1
    assert killed == KILLS
    build = start(repository, output, log)
    while build.poll() is None:
        most = max(most, compilers(output))
        time.sleep(0.1)
    text = log.read_text()
    assert build.returncode == 0, text[-5000:]
    steps = core_steps(output)
    assert not [name for name, times in finished.items() if steps.get(name, times) != times]
    assert 1 < most <= JOBS
    for config in CONFIGS:
        assert list((output / "packages" / f"{config}-rehearsal").glob("linux-64/pytorch-2*.conda"))
    assert not (output / ".job-pools").exists()


def test_one_that_fails_leaves_the_others_alone(repository: Path, tmp_path: Path, output: Path) -> None:
    state = output / "linux_64_cuda129-rehearsal"
    state.mkdir(parents=True)
    with FileLock(state / "lock"):  # as if it were being built in another terminal
        build = start(repository, output, tmp_path / "log", "--json")
        assert build.wait(_SECONDS) == 11
    assert exit_codes(tmp_path / "log") == {"linux_64_cpu": 0, "linux_64_cuda129": 11, "linux_64_cuda130": 0}


def exit_codes(log: Path) -> dict[str, int]:
    """Return the exit code of each config, from the JSON document in a log."""
    text = log.read_text()
    document = json.loads(text[text.index('{\n "format"') :])
    return {entry["config"]: entry["exit_code"] for entry in document["configs"]}


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """The folder of a cgroup with 3 GB of memory."""
    v1 = Path("/sys/fs/cgroup/memory")
    is_v1 = v1.is_dir()
    group = (v1 if is_v1 else Path("/sys/fs/cgroup")) / f"megabuild-test-{os.getpid()}"
    try:
        group.mkdir()
        limit = group / ("memory.limit_in_bytes" if is_v1 else "memory.max")
        limit.write_text(str(3 * 10**9))
    except OSError as error:
        pytest.skip(f"no cgroup with a limit of memory can be made here: {error}")
    yield group
    wait_for(lambda: not (group / "cgroup.procs").read_text(), _MERCY_SECONDS)
    group.rmdir()


def test_one_that_runs_out_of_memory_leaves_the_others_alone(
    repository: Path, tmp_path: Path, output: Path, small_memory: Path
) -> None:
    root = tmp_path / "root"
    ignored = shutil.ignore_patterns(".git", ".venv", "output", "__pycache__", ".*_cache")
    shutil.copytree(repository, root, symlinks=True, ignore=ignored)
    core = root / "rehearsal" / "model" / "caffe2"
    # 10**8 initializers: the compiler asks for more than 3 GB, and the kernel kills it
    tens = [f"#define E{level + 1} {','.join([f'E{level}'] * 10)}" for level in range(8)]
    (core / "core" / "huge.cpp").write_text("\n".join(["#define E0 1", *tens, "int huge[] = {E8};"]) + "\n")
    listing = core / "CMakeLists.txt"
    listing.write_text(
        f"{listing.read_text()}\n"
        'if("$ENV{cuda_compiler_version}" STREQUAL "12.9")\n'
        "  target_sources(torch_cpu PRIVATE core/huge.cpp)\n"
        "endif()\n"
    )
    build = start(root, output, tmp_path / "log", "--json", group=small_memory)
    assert build.wait(_SECONDS) == OutOfMemoryError.exit_code
    codes = exit_codes(tmp_path / "log")
    assert codes == {
        "linux_64_cpu": 0, "linux_64_cuda129": OutOfMemoryError.exit_code, "linux_64_cuda130": 0,
    }  # fmt: skip
    assert "huge.cpp" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all(
    repository: Path, tmp_path: Path, output: Path, number: signal.Signals
) -> None:
    build = start(repository, output, tmp_path / "log")
    states = [output / f"{config}-rehearsal" / "state.json" for config in CONFIGS]
    assert wait_for(lambda: all(state.exists() for state in states), 600.0)
    build.send_signal(number)
    assert build.wait(60.0) == 130
    assert not processes_of(output)
    for state in states:
        assert json.loads(state.read_text())["status"] == "interrupted"
