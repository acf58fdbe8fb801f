"""``kill -9`` of the driver at ten moments of a rehearsal, and one plain run after each.

Moments are random, one in each tenth of an undisturbed run's duration; MEGABUILD_TEST_SEED gives others.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from rattler import PathsJson

pytestmark = pytest.mark.long
CONFIG = "linux_64_cpu"
PYTHONS = 2
KILLS = 10
#: How long after the driver's death its compilers and tests may live on.
MERCY_SECONDS = 10.0
Contents = Mapping[str, Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Driver:
    """Starts the driver on an output folder."""

    repository: Path
    pythons: tuple[str, ...]

    def start(self, output: Path) -> subprocess.Popen[str]:
        """Start a rehearsal."""
        command = [sys.executable, "-m", "megabuild", "build", CONFIG, "--rehearse", "--engine", "host"]
        command += [
            "--output",
            str(output),
            *(word for python in self.pythons for word in ("--python", python)),
        ]
        return subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(self.repository / "scripts")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def finish(self, output: Path) -> float:
        """Run a rehearsal to its end; return its duration in seconds."""
        began = time.monotonic()
        with self.start(output) as process:
            try:
                said, _ = process.communicate()
            finally:
                process.kill()  # only where the test itself was interrupted
        assert process.returncode == 0, said[-5000:]
        return time.monotonic() - began


def contents(output: Path) -> dict[str, list[str]]:
    """Every published package (its file name is name, version and build string) with the files in it."""
    packages = output / "packages" / f"{CONFIG}-rehearsal"
    return {
        str(archive.relative_to(packages)): sorted(
            str(entry.relative_path) for entry in PathsJson.from_package_archive(archive).paths
        )
        for archive in sorted(packages.rglob("*.conda"))
    }


def strays(output: Path) -> list[str]:
    """Processes that have to do with an output folder: by their folder, their command or their environment."""
    found = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            known = [process.cwd(), *process.cmdline(), *process.environ().values()]
            if any(str(output) in text for text in known):
                found.append(f"{process.pid} {' '.join(process.cmdline())[:200]}")
    return found


def until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@pytest.fixture(scope="module")
def driver(repository: Path) -> Driver:
    """A driver narrowed to two Pythons that this machine has."""
    from megabuild.configs.config import load
    from megabuild.providers.interpreters import find

    found = find(print)
    here = [python for python in load(repository, CONFIG).pythons if python in found]
    if len(here) < PYTHONS:
        pytest.skip(f"needs {PYTHONS} Pythons of the config, found {here}")
    return Driver(repository=repository, pythons=tuple(here[-PYTHONS:]))


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one output folder of all runs, emptied in between: in another one the object cache would not hit."""
    return tmp_path_factory.mktemp("output")


@pytest.fixture(scope="module")
def undisturbed(driver: Driver, output: Path) -> tuple[Contents, float]:
    """What an undisturbed run makes, and how long it takes with warm caches."""
    driver.finish(output)  # fills the caches
    expected = contents(output)
    shutil.rmtree(output)
    seconds = driver.finish(output)
    assert contents(output) == expected
    assert len(expected) == 2 + PYTHONS, "libtorch, pytorch-cpu, and pytorch for each Python"
    shutil.rmtree(output)
    return expected, seconds


@pytest.mark.slow
def test_a_driver_killed_at_any_moment_leaves_nothing_that_a_plain_run_does_not_finish(
    driver: Driver, undisturbed: tuple[Contents, float], output: Path
) -> None:
    expected, seconds = undisturbed
    seed = int(os.environ.get("MEGABUILD_TEST_SEED", "20261121"))
    chance = random.Random(seed)
    print(f"\nan undisturbed run takes {seconds:.1f} s; seed {seed}")
    killed = 0
    for number in range(KILLS):
        moment = (number + chance.random()) / KILLS * seconds
        with driver.start(output) as process:
            try:
                process.wait(moment)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                killed += 1
            process.wait()
            ended = until(lambda: not strays(output), MERCY_SECONDS)
            assert ended, f"killed after {moment:.1f} s, still there: {strays(output)}"
        rest = driver.finish(output)
        print(f"killed after {moment:5.1f} s, finished by the next run in {rest:5.1f} s")
        assert contents(output) == expected, f"killed after {moment:.1f} s"
        assert not strays(output)
        shutil.rmtree(output)
    assert killed >= KILLS - 2, f"only {killed} runs were still going when they should have been killed"
