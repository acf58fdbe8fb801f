"""``kill -9`` of the driver at ten moments of two rehearsals, each of which a plain run finishes in the end.

Moments are random, one in each tenth of an undisturbed run's duration; MEGABUILD_TEST_SEED gives others. The run that
goes on after a kill is killed as well: two folders share the ten moments. A moment is kept as a line of the log
and a time after it, which the next line cuts short: the same number of seconds would be somewhere else on a machine
that is less busy, with a filled object cache, and in a run that finds the first half done.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psutil
import pytest
from package_files import published

CONFIG = "linux_64_cpu"
PYTHONS = 2
KILLS = 10
FOLDERS = 2
#: How long after the driver's death its compilers and tests may live on.
MERCY_SECONDS = 10.0
Contents = Mapping[str, object]
_COUNTER = re.compile(r"\[\d+/\d+ [\d.]+s?\] ")
_STAMP = re.compile(r"(?P<time>\d{4}-\d\d-\d\dT\S+Z) (?P<text>.*)")


@dataclass(frozen=True, kw_only=True)
class Undisturbed:
    """What a run makes that nobody kills, how long it takes, and when it wrote each line of its log, in seconds."""

    contents: Contents
    seconds: float
    lines: Sequence[tuple[str, float]]  #: those that stand in the log once

    def moment(self, share: float) -> Moment:
        """Turn a share of the duration into what the log says before and after it."""
        at = share * self.seconds
        count = bisect.bisect_right(self.lines, at, key=lambda line: line[1])
        before, began = self.lines[count - 1] if count else ("", 0.0)
        return Moment(before=before, seconds=at - began, after={text for text, _ in self.lines[count:]})


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A place in the log: a time after one line and before all that follow."""

    before: str  #: "" where there is none
    seconds: float
    after: Collection[str]


@dataclass(frozen=True, kw_only=True)
class Driver:
    """Starts the driver on an output folder."""

    repository: Path
    pythons: tuple[str, ...]

    def start(self, output: Path) -> subprocess.Popen[str]:
        """Start a rehearsal."""
        command = [sys.executable, "-m", "megabuild", "build", CONFIG, "--rehearse", "--engine", "host"]
        command += ["--optimization", "0"]  # half the time of each compile
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

    def finish(self, output: Path) -> tuple[float, float]:
        """Run a rehearsal to its end; return the time when it was started and its duration, both in seconds."""
        began = time.time()
        with self.start(output) as process:
            try:
                said, _ = process.communicate()
            finally:
                process.kill()  # only where the test itself was interrupted
        assert process.returncode == 0, said[-5000:]
        return began, time.time() - began

    def kill(self, output: Path, moment: Moment) -> bool:
        """Kill a rehearsal at a moment; return whether it still ran."""
        former = log(output).resolve()

        def written(lines: Collection[str]) -> bool:
            return log(output).resolve() != former and any(text in lines for text, _ in log_lines(output))

        with self.start(output) as process:

            def late() -> bool:
                return process.poll() is not None or written(moment.after)

            try:
                until(lambda: late() or not moment.before or written({moment.before}), 3600)
                until(late, moment.seconds)
            finally:
                running = process.poll() is None
                process.kill()
                process.wait()
        return running


def log(output: Path) -> Path:
    """The log of the present run, or of the last."""
    return output / f"{CONFIG}-rehearsal" / "logs" / "latest.log"


def log_lines(output: Path) -> list[tuple[str, float]]:
    """Its lines without ninja's counters, which differ from run to run, and their times, in seconds."""
    if not log(output).exists():
        return []
    found = (_STAMP.match(line) for line in log(output).read_text().splitlines())
    return [
        (
            _COUNTER.sub("", line["text"]),
            datetime.strptime(line["time"], "%Y-%m-%dT%H:%M:%S.%f%z").timestamp(),
        )
        for line in found
        if line
    ]


def contents(output: Path) -> Contents:
    """Every published package, with everything in it."""
    return published(output / "packages" / f"{CONFIG}-rehearsal")


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
    from megabuild.providers.local.interpreters import find

    found = find(print)
    here = [python for python in load(repository, CONFIG).pythons if python in found]
    if len(here) < PYTHONS:
        pytest.skip(f"needs {PYTHONS} Pythons of the config, found {here}")
    return Driver(repository=repository, pythons=tuple(here[-PYTHONS:]))


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one output folder of all runs, emptied in between: on the host its path is part of what is linked."""
    return tmp_path_factory.mktemp("output")


@pytest.fixture(scope="module")
def undisturbed(driver: Driver, output: Path) -> Undisturbed:
    """A run to its end, which fills the caches."""
    began, seconds = driver.finish(output)
    expected = contents(output)
    names = [name for name in expected if name.endswith(".conda") and not name.startswith("in ")]
    assert len(names) == 2 + PYTHONS, "libtorch, pytorch-cpu, and pytorch for each Python"
    library = next(held for name, held in expected.items() if name.startswith("in libtorch-"))
    assert isinstance(library, dict)
    assert library["bin/torch_shm_manager"].mode == "0o755"
    written = log_lines(output)
    often = Counter(text for text, _ in written)
    shutil.rmtree(output)
    return Undisturbed(
        contents=expected,
        seconds=seconds,
        lines=[(text, stamp - began) for text, stamp in written if often[text] == 1],
    )


@pytest.mark.long  # test_attack_tiny kills as often, in seconds
def test_a_driver_killed_at_any_moment_leaves_nothing_that_a_plain_run_does_not_finish(
    driver: Driver, undisturbed: Undisturbed, output: Path
) -> None:
    seed = int(os.environ.get("MEGABUILD_TEST_SEED", "20261121"))
    chance = random.Random(seed)
    print(f"\nan undisturbed run takes {undisturbed.seconds:.1f} s; seed {seed}")
    shares = [(number + chance.random()) / KILLS for number in range(KILLS)]
    killed = 0
    for number in range(FOLDERS):
        for share in shares[number::FOLDERS]:
            running = driver.kill(output, undisturbed.moment(share))
            killed += running
            where = f"killed at {share:.0%}" if running else f"ended by itself before {share:.0%}"
            assert until(lambda: not strays(output), MERCY_SECONDS), f"{where}, still there: {strays(output)}"
            last = ["nothing", *(text for text, _ in log_lines(output))][-1]
            done = len(list((output / "packages").rglob("*.conda")))
            print(f"{where} ({last}, {done} packages published)")
        _, seconds = driver.finish(output)
        print(f"finished by the next run in {seconds:.1f} s")
        assert contents(output) == undisturbed.contents, f"killed at {shares[number::FOLDERS]}"
        assert not strays(output)
        shutil.rmtree(output)
    assert killed >= KILLS - 2, f"only {killed} runs were still going when they should have been killed"
