"""The history of a run: its phases and samples, bounded, written while it runs."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from small_files import write

from groundwork.machine import tree_cpu
from megabuild.status import history as history_file
from megabuild.status import recorder as recorder_module
from megabuild.status.history import History, Sample
from megabuild.status.record import RunStatus
from megabuild.status.recorder import halve
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
    assert oct((tmp_path / history_file.NAME).stat().st_mode & 0o777) == "0o644", "others may look"


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


def test_a_run_with_nothing_to_do_leaves_the_history_of_the_last_run(tmp_path: Path) -> None:
    write(tmp_path / history_file.NAME, "kept")
    status = Status("linux_64_cpu", tmp_path)
    status.keeps_file = True
    with status.task("pytorch") as task:
        task.phase("libtorch: compile")
    status.publish(at_once=True)
    status.end(RunStatus.DONE, "", 0, 1.0)
    assert (tmp_path / history_file.NAME).read_text() == "kept"


def test_samples_beyond_the_limit_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "_SECONDS", 0.01)
    monkeypatch.setattr(recorder_module, "_MOST_SAMPLES", 8)
    status = Status("linux_64_cpu", tmp_path)
    for _ in range(40):
        time.sleep(0.01)
        status.publish(at_once=True)
    samples = history_of(status, tmp_path).samples
    assert len(samples) < 8
    assert samples[-1].at - samples[0].at > 0


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
