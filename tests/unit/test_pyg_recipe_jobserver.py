"""Modules compiled at once keep to one limit on jobs, whoever set it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path

import pytest

from jobserver import Jobserver, run_all

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")


@pytest.fixture
def jobserver() -> Iterator[Jobserver]:
    made = Jobserver.create(3)
    yield made
    made.remove()


def work(log: Path, seconds: float = 0.15) -> None:
    """Write down start and end; a line of this length is written in one go."""
    with log.open("a", buffering=1) as stream:
        stream.write(f"{time.monotonic()} 1\n")
        time.sleep(seconds)
        stream.write(f"{time.monotonic()} -1\n")


def work_with_others(log: Path, others: int) -> None:
    """Write down start and end; the end when so many have started, or never will."""
    with log.open("a", buffering=1) as stream:
        stream.write(f"{time.monotonic()} 1\n")
        last = time.monotonic() + 20
        while log.read_text().count(" 1\n") < others and time.monotonic() < last:
            time.sleep(0.02)
        time.sleep(0.1)
        stream.write(f"{time.monotonic()} -1\n")


def most_at_once(log: Path) -> int:
    events = sorted(line.split() for line in log.read_text().splitlines())
    return max(accumulate(int(change) for _, change in events))


def tokens(jobserver: Jobserver) -> int:
    count = 0
    while jobserver.take():
        count += 1
    jobserver.give(b"+" * count)
    return count


def test_the_own_slot_and_every_token_are_used_and_given_back(tmp_path: Path, jobserver: Jobserver) -> None:
    log = tmp_path / "log"
    assert run_all([(str(number), partial(work_with_others, log, 3)) for number in range(6)], jobserver) == []
    assert len(log.read_text().splitlines()) == 12
    assert most_at_once(log) == 3
    assert tokens(jobserver) == 2


def test_several_builds_share_one_limit(tmp_path: Path, jobserver: Jobserver) -> None:
    """Two builds with a slot each and two tokens between them: never more than four at once."""
    log = tmp_path / "log"
    children = []
    for build in range(2):
        process = os.fork()
        if process == 0:
            joined = Jobserver.from_makeflags(jobserver.makeflags)
            assert joined is not None
            failed = run_all(
                [(f"{build}-{number}", partial(work_with_others, log, 3)) for number in range(6)], joined
            )
            os._exit(len(failed))
        children.append(process)
    assert [os.waitpid(process, 0)[1] for process in children] == [0, 0]
    assert len(log.read_text().splitlines()) == 24
    assert 3 <= most_at_once(log) <= 4
    assert tokens(jobserver) == 2


@pytest.mark.parametrize("signal_of", [None, signal.SIGKILL, signal.SIGTERM])
def test_a_task_whose_process_was_ended_has_failed(
    signal_of: signal.Signals | None, tmp_path: Path, jobserver: Jobserver
) -> None:
    """By the kernel, where memory is short, or by itself."""

    def ends() -> None:
        if signal_of is None:
            os._exit(3)
        os.kill(os.getpid(), signal_of)

    good = partial(work, tmp_path / "log", 0.0)
    assert run_all([("good", good), ("ended", ends), ("also good", good)], jobserver) == ["ended"]
    assert tokens(jobserver) == 2


def test_failures_are_named_and_cost_no_token(
    tmp_path: Path, jobserver: Jobserver, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise OSError("no space left")

    log = tmp_path / "log"
    good = partial(work, log, 0.0)
    assert run_all([("good", good), ("bad", fails), ("also good", good)], jobserver) == ["bad"]
    assert len(log.read_text().splitlines()) == 4
    assert tokens(jobserver) == 2
    assert "no space left" in capfd.readouterr().err


@pytest.mark.parametrize(
    "makeflags", ["", " -j4", " -j --jobserver-auth=3,4", " -j --jobserver-auth=fifo:{path}"]
)
@pytest.mark.parametrize("is_file", [False, True])
def test_flags_without_a_pipe_name_no_jobserver(makeflags: str, is_file: bool, tmp_path: Path) -> None:
    """The build that made it may have ended."""
    path = tmp_path / "tokens"
    if is_file:
        path.touch()
    assert Jobserver.from_makeflags(makeflags.format(path=path)) is None
