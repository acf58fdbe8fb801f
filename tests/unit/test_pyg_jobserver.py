"""One limit over several clients: nothing is given twice, nothing is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from megabuild.run.pyg.jobserver import Jobserver, makeflags


class Clock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Client:
    """Somebody who reads and writes a FIFO as the protocol says."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def take(self, most: int = 100) -> int:
        try:
            return len(os.read(self.descriptor, most))
        except BlockingIOError:
            return 0

    def give(self, count: int) -> None:
        os.write(self.descriptor, b"+" * count)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def opened(jobs: Jobserver, name: str, folder: Path) -> Client:
    jobs.open(name, folder / name)
    return Client(folder / name)


def test_a_single_client_is_offered_all_but_the_job_it_has_anyway(tmp_path: Path) -> None:
    assert opened(Jobserver(4), "a", tmp_path).take() == 3


def test_several_clients_share_evenly(tmp_path: Path) -> None:
    jobs = Jobserver(6)
    one, two = opened(jobs, "a", tmp_path), opened(jobs, "b", tmp_path)
    # the first was offered five; one of them became the second one's own job, the rest is offered to both in time
    jobs.balance()
    assert one.take() + two.take() == 4
    assert jobs.given + jobs.clients == 6


def test_there_is_no_room_for_more_clients_than_jobs(tmp_path: Path) -> None:
    jobs = Jobserver(2)
    opened(jobs, "a", tmp_path)
    assert jobs.room()
    opened(jobs, "b", tmp_path)
    assert not jobs.room()


def test_a_job_in_use_makes_no_room(tmp_path: Path) -> None:
    jobs = Jobserver(2)
    client = opened(jobs, "a", tmp_path)
    assert client.take() == 1
    assert not jobs.room()
    client.give(1)
    assert jobs.room()


def test_what_a_killed_client_held_is_free_again(tmp_path: Path) -> None:
    jobs = Jobserver(5)
    killed = opened(jobs, "a", tmp_path)
    assert killed.take() == 4
    jobs.close("a")  # it never gave anything back
    assert opened(jobs, "b", tmp_path).take() == 4


def test_a_finished_client_hands_its_own_job_over(tmp_path: Path) -> None:
    jobs = Jobserver(2)
    opened(jobs, "a", tmp_path)
    other = opened(jobs, "b", tmp_path)
    assert other.take() == 0
    jobs.close("a")
    assert other.take() == 1


def test_a_lower_limit_takes_back_what_is_not_in_use_and_the_rest_when_it_is_given_back(
    tmp_path: Path,
) -> None:
    jobs = Jobserver(5)
    client = opened(jobs, "a", tmp_path)
    assert client.take(2) == 2
    jobs.limit = 2
    assert client.take() == 0
    client.give(2)
    jobs.balance()
    assert client.take() == 1


def test_a_higher_limit_is_offered_at_once(tmp_path: Path) -> None:
    jobs = Jobserver(1)
    client = opened(jobs, "a", tmp_path)
    jobs.limit = 3
    assert client.take() == 2


def test_what_one_client_leaves_unread_goes_to_another(tmp_path: Path, clock: Clock) -> None:
    jobs = Jobserver(3, clock)
    opened(jobs, "idle", tmp_path)
    jobs.open("busy", tmp_path / "busy")
    busy = Client(tmp_path / "busy")
    got = 0
    for _ in range(3):
        clock.now += 2
        jobs.balance()
        got += busy.take()
    assert got == 1
    assert jobs.given + jobs.clients == 3


def test_an_ended_client_leaves_no_file(tmp_path: Path) -> None:
    jobs = Jobserver(2)
    opened(jobs, "a", tmp_path)
    jobs.close("a")
    assert not list(tmp_path.iterdir())


# ---- with ninja -------------------------------------------------------------------------------------------------

NINJA_FILE = "rule r\n  command = echo b >> log; sleep 0.3; echo e >> log; touch $out\n" + "".join(
    f"build {name}: r\n" for name in "abcdef"
)


@pytest.fixture(scope="session")
def ninja() -> str:
    """A ninja that takes part in a jobserver."""
    path = shutil.which("ninja", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    version = subprocess.run([path, "--version"], stdout=subprocess.PIPE, text=True).stdout if path else "0"
    if path is None or tuple(map(int, version.split(".")[:2])) < (1, 13):
        pytest.skip(f"ninja {version.strip()} takes no part in a jobserver, 1.13 does")
    return path


@pytest.fixture
def started(ninja: str, tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two ninjas with six commands each that share three jobs; whatever happens, they end."""
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.kill()
        process.wait()


def start(ninja: str, folder: Path, fifo: Path, log: Path) -> subprocess.Popen[bytes]:
    folder.mkdir()
    (folder / "build.ninja").write_text(NINJA_FILE.replace("log", str(log)))
    environment = {**os.environ, "MAKEFLAGS": makeflags(str(fifo), 3)}
    return subprocess.Popen(
        [ninja], cwd=folder, env=environment, stdout=subprocess.DEVNULL, start_new_session=True
    )


def most_at_once(log: Path) -> int:
    now = most = 0
    for line in log.read_text().split():
        now += 1 if line == "b" else -1
        most = max(most, now)
    return most


def test_two_ninjas_together_keep_to_the_limit_and_reach_it(
    ninja: str, tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    jobs, log = Jobserver(3), tmp_path / "log"
    for name in "ab":
        jobs.open(name, tmp_path / f"fifo-{name}")
    for name in "ab":
        started.append(start(ninja, tmp_path / name, tmp_path / f"fifo-{name}", log))
    while any(process.poll() is None for process in started):
        jobs.balance()
        time.sleep(0.02)
    assert [process.returncode for process in started] == [0, 0]
    assert most_at_once(log) == 3
    assert len(log.read_text().split()) == 24


def test_after_kill_9_the_other_ninja_gets_the_killed_ones_jobs(
    ninja: str, tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    jobs, log, other = Jobserver(3), tmp_path / "log-a", tmp_path / "log-b"
    jobs.open("a", tmp_path / "fifo-a")
    started.append(start(ninja, tmp_path / "a", tmp_path / "fifo-a", log))
    while not log.exists() or log.read_text().count("b") < 3:
        time.sleep(0.02)
    os.killpg(started[0].pid, signal.SIGKILL)  # with all three jobs, none of which is ever given back
    started[0].wait()
    assert jobs.given == 2
    jobs.close("a")
    jobs.open("b", tmp_path / "fifo-b")
    started.append(start(ninja, tmp_path / "b", tmp_path / "fifo-b", other))
    assert started[1].wait(10) == 0
    assert most_at_once(other) == 3
