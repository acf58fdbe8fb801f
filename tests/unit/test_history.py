"""The history of a run: its phases and samples, bounded, written while it runs."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_files import write
from tiny import Clock

from groundwork import files
from groundwork.machine import Machine, tree_cpu
from megabuild.status import history as history_file
from megabuild.status import record as record_file
from megabuild.status import recorder as recorder_module
from megabuild.status.history import History, Sample
from megabuild.status.record import RunStatus
from megabuild.status.recorder import HistoryRecorder, halve
from megabuild.status.status import Status


def history_of(status: Status, folder: Path) -> History:
    history = history_file.read(folder, status.record.began)
    assert history is not None
    return history


def test_phases_and_samples_are_written_while_the_run_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "_SECONDS", 0.01)
    status = Status("linux_64_cpu", tmp_path)
    with status.task("pytorch") as task:
        task.phase("libtorch: configure")
        work(0.2)
        task.phase("libtorch: compile")
        history = history_of(status, tmp_path)
        assert [(span.task, span.what) for span in history.spans] == [("pytorch", "libtorch: configure")]
        assert history.spans[0].ended - history.spans[0].began >= 0.2
        assert 0 < max(sample.cores for sample in history.samples) < history.cores + 1
        assert history.samples[-1].memory > 1_000_000
        assert abs(history.samples[-1].at - time.time()) < 10
        status.end(RunStatus.FAILED, "no", 7, 1.0)
    history = history_of(status, tmp_path)
    assert [span.what for span in history.spans] == ["libtorch: configure", "libtorch: compile"]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO], ids=os.strerror)
def test_no_run_ends_because_its_history_cannot_be_written(
    error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(files, "write", refuse)
    history_file.write(tmp_path, History(began=1.5, cores=2, memory=3))


def work(seconds: float) -> None:
    """Use a core for so many seconds of the CPU."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        sum(range(1000))


def test_the_cpu_of_children_counts_while_they_run_and_afterwards() -> None:
    before = tree_cpu(os.getpid())
    child = os.fork()
    if not child:
        work(0.3)
        os._exit(0)
    os.waitpid(child, 0)
    assert tree_cpu(os.getpid()) - before >= 0.25


def test_the_cpu_of_a_child_counts_before_it_ends() -> None:
    reading, writing = os.pipe()
    before = tree_cpu(os.getpid())
    child = os.fork()
    if not child:
        work(0.3)
        os.write(writing, b"x")
        time.sleep(60)
        os._exit(0)
    try:
        os.read(reading, 1)
        assert tree_cpu(os.getpid()) - before >= 0.25
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)


def test_a_run_with_nothing_to_do_leaves_the_files_of_the_last_run(tmp_path: Path) -> None:
    kept = [write(tmp_path / name, "kept") for name in (history_file.NAME, record_file.NAME)]
    status = Status("linux_64_cpu", tmp_path)
    status.keeps_file = True
    with status.task("pytorch") as task:
        task.phase("libtorch: compile")
    status.publish(at_once=True)
    status.end(RunStatus.DONE, "", 0, 1.0)
    assert [path.read_text() for path in kept] == ["kept"] * 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of a machine on which the run uses 1.5 cores, and other programs half a core."""
    clock = Clock()
    clock.now = 0.0
    monkeypatch.setattr(recorder_module, "time", SimpleNamespace(monotonic=clock, time=clock))
    monkeypatch.setattr(recorder_module, "tree_cpu", lambda _: clock.now * 1.5)
    monkeypatch.setattr(recorder_module, "_busy_seconds", lambda: clock.now * 2)
    return clock


def recorded(clock: Clock, folder: Path, cores: int, memory: Sequence[int]) -> list[Sample]:
    """Record a run that uses so much memory, each second."""
    recorder = HistoryRecorder(folder, 0.0, Machine(cores=cores, memory=9, memory_free=9))
    for used in memory:
        clock.now += 1
        recorder.tick(used)
    history = history_file.read(folder, 0.0)
    assert history is not None
    return history.samples


@pytest.mark.parametrize("limited", [False, True])
def test_a_sample_has_the_most_memory_since_the_last_one(limited: bool, clock: Clock, tmp_path: Path) -> None:
    """If the run may not use all cores, other programs may use those."""
    cores = (os.cpu_count() or 1) + limited
    others = 0.0 if limited else 0.5
    assert recorded(clock, tmp_path, cores, (7, 5, 2, 3)) == [
        Sample(at=2, seconds=2, cores=1.5, other_cores=others, memory=7),
        Sample(at=4, seconds=2, cores=1.5, other_cores=others, memory=3),
    ]


def test_a_process_that_is_missing_once_leaves_the_history_readable(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended while the processes were counted."""
    monkeypatch.setattr(recorder_module, "tree_cpu", lambda _: -clock.now)
    assert [sample.cores for sample in recorded(clock, tmp_path, 1, [1] * 2)] == [0.0]


def test_samples_beyond_the_limit_are_merged_and_later_ones_longer(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "_MOST_SAMPLES", 4)
    samples = recorded(clock, tmp_path, 1, [1] * 50)
    assert [(sample.at, sample.seconds) for sample in samples] == [(16, 16), (32, 16), (48, 16)]


def test_merged_samples_keep_time_average_and_peak() -> None:
    samples = [
        Sample(at=2, seconds=2, cores=1, other_cores=0.5, memory=5),
        Sample(at=6, seconds=4, cores=4, other_cores=0.5, memory=3),
        Sample(at=8, seconds=2, cores=7, memory=1),
    ]
    first, last = halve(samples)
    assert first == Sample(at=6, seconds=6, cores=3, other_cores=0.5, memory=5)
    assert last == samples[2]


def test_phases_beyond_the_limit_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "_MOST_SPANS", 3)
    status = Status("linux_64_cpu", tmp_path)
    with status.task("pytorch") as task:
        for number in range(5):
            task.begin("x" * 1000 + str(number))
    status.end(RunStatus.DONE, "", 0, 1.0)
    history = history_of(status, tmp_path)
    assert (len(history.spans), history.spans_left_out) == (3, 2)
    assert len(history.spans[0].what) == 200


@pytest.mark.parametrize(
    "content", ["", "{}", "[" * 100_000, '{"format": "megabuild/run-state"}', b"\xff", b'{"format": "\xff"}']
)
def test_a_damaged_history_is_none(tmp_path: Path, content: str | bytes) -> None:
    write(tmp_path / history_file.NAME, content)
    assert history_file.read(tmp_path, 1.0) is None


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_history_that_is_no_file_is_none(tmp_path: Path, kind: str) -> None:
    path = tmp_path / history_file.NAME
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(write(tmp_path / "elsewhere", "{}"))
    assert history_file.read(tmp_path, 1.0) is None


def test_the_history_of_another_run_is_none(tmp_path: Path) -> None:
    history_file.write(tmp_path, History(began=1.5, cores=2, memory=3))
    assert history_file.read(tmp_path, 1.5) == History(began=1.5, cores=2, memory=3)
    assert history_file.read(tmp_path, 2.5) is None
    assert history_file.read(tmp_path / "missing", 1.5) is None
