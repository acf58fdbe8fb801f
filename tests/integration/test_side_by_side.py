"""Three configs that share no objects, built side by side: killed at any moment, interrupted, with one that fails.

Rehearsals on the host. Moments are random; MEGABUILD_TEST_SEED gives others, MEGABUILD_TEST_KILLS another number.
"""

from __future__ import annotations

import json
import os
import random
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

from groundwork.files import FileLock

CONFIGS = ("linux_64_cpu", "linux_64_cuda129", "linux_64_cuda130")
JOBS = 4
KILLS = int(os.environ.get("MEGABUILD_TEST_KILLS", "20"))
_SECONDS = 3600.0
#: How long after the command's death its compilers and tests may live on.
_MERCY_SECONDS = 15.0
pytestmark = pytest.mark.long


def start(repository: Path, output: Path, log: Path, *options: str) -> subprocess.Popen[bytes]:
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
    with log.open("ab") as stream:
        return subprocess.Popen(
            command,
            cwd=repository,
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


def core_steps(output: Path) -> dict[str, tuple[str, str]]:
    """Return start and end of the last run of each step that compiles a core object, from ninja's logs."""
    steps: dict[str, tuple[str, str]] = {}
    for log in output.glob("*/tree/build/.ninja_log"):
        for line in log.read_text(errors="replace").splitlines()[1:]:
            cells = line.split("\t")
            if len(cells) == 5 and cells[3].endswith(".o") and "python" not in cells[3]:
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
    for number in range(KILLS):
        build = start(repository, output, log)
        if number % 2:  # the other half is killed wherever the start has come to
            compile_began = partial(compilers, output)
            assert wait_for(compile_began, _SECONDS)
        until = time.monotonic() + chance.uniform(1.0, 60.0)
        while time.monotonic() < until and build.poll() is None:
            most = max(most, compilers(output))
            time.sleep(0.1)
        build.kill()
        build.wait()
        assert wait_for(lambda: not processes_of(output), _MERCY_SECONDS), processes_of(output)
        steps = core_steps(output)
        again = [name for name, times in finished.items() if steps.get(name, times) != times]
        assert not again, f"compiled twice before kill {number}"
        finished = steps
        print(f"kill {number}: {len(finished)} core objects, at most {most} compilers", flush=True)
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
    text = (tmp_path / "log").read_text()
    document = json.loads(text[text.index('{\n "format"') :])
    codes = {entry["config"]: entry["exit_code"] for entry in document["configs"]}
    assert codes == {"linux_64_cpu": 0, "linux_64_cuda129": 11, "linux_64_cuda130": 0}


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
