"""One record of a run, changed from many threads."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from tiny import Clock, kept_sentences

from groundwork.progress import Preparing
from megabuild.status import record as state_file
from megabuild.status import status as status_module
from megabuild.status.record import PackageState, RunStatus
from megabuild.status.status import PHASE, Status


@pytest.fixture
def status(tmp_path: Path) -> Status:
    made = Status("linux_64_cpu", tmp_path)
    made.plan({"libtorch": True, "pytorch": False})
    return made


def test_a_task_is_a_row_while_it_runs(status: Status, tmp_path: Path) -> None:
    with kept_sentences() as kept, status.task("pytorch", level=PHASE) as task:
        task.phase("libtorch: configure")
        task.phase("libtorch: compile")
        task.advance(3, 9)
        written = state_file.read(tmp_path)
        assert written is not None
        assert written.status == "building"
        assert [row.what for row in written.activities] == ["libtorch: compile"]
        assert (status.record.activities[0].done, status.record.activities[0].total) == (3, 9)
        task.advance(9, 9)
    assert status.record.activities == []
    phases = [one.getMessage() for one in kept if hasattr(one, "begins_phase")]
    assert phases == ["libtorch: configure", "libtorch: compile"]
    assert [(one.levelno, one.getMessage()) for one in kept][-1] == (PHASE, "libtorch: compile 9/9")


def test_packages_go_from_built_to_published_and_a_failed_one_stays_so(status: Status) -> None:
    for state in (
        PackageState.BUILT,
        PackageState.TESTING,
        PackageState.TESTED,
        PackageState.PUBLISHED,
        PackageState.FAILED,
    ):
        status.set_packages(["pytorch", "libtorch"], state)
    assert status.record.packages == {"libtorch": "published", "pytorch": "published"}
    status.plan({"pytorch": False})
    for state in (PackageState.FAILED, PackageState.TESTED):
        status.set_packages(["pytorch"], state)
    assert status.record.packages == {"pytorch": "failed"}


def test_a_preparation_is_a_row_and_its_warnings_are_warnings(status: Status) -> None:
    with kept_sentences() as kept:
        status.note(Preparing(what="packing wheels", total=2, unit="packages"))
        assert status.record.status is RunStatus.PREPARING
        status.note(Preparing(what="packing wheels", done=1, total=2, unit="packages"))
        assert (status.record.status, status.record.activities[0].done) == ("preparing", 1)
        status.note("! x was damaged")
        status.note("packaged x")
        status.note(Preparing(what="packing wheels", done=2, total=2, unit="packages"))
        status.note(Preparing(what="fetching x", total=9, unit="bytes"))
        status.note(Preparing(what="fetching x", total=9, unit="bytes", has_failed=True))
    assert not status.record.activities
    said = [one.getMessage() for one in kept]
    assert [text for text in said if text.endswith(": done")] == ["packing wheels: done"]
    assert [one.getMessage() for one in kept if one.levelno == logging.WARNING] == ["x was damaged"]


def test_threads_change_it_at_once_and_the_file_is_whole(status: Status, tmp_path: Path) -> None:
    def work(number: int) -> None:
        with status.task(f"task {number}") as task:
            for done in range(50):
                task.phase(f"phase {done}")
                task.advance(done, 50)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert status.record.activities == []
    assert state_file.read(tmp_path) is not None


def test_the_end_of_a_run_has_its_duration(tmp_path: Path, status: Status) -> None:
    status.end(RunStatus.FAILED, "no luck", 8, 60.0)
    written = state_file.read(tmp_path)
    assert written is not None
    assert (written.status, written.exit_code, written.pid) == ("failed", 8, os.getpid())
    assert written.updated - written.began == pytest.approx(60)
    status.publish(at_once=True)
    assert state_file.read(tmp_path) == written, "a thread may still report"


def test_a_run_that_waits_for_its_turn_leaves_the_record_of_another(tmp_path: Path, status: Status) -> None:
    status.beat()
    assert state_file.read(tmp_path) is None
    status.publish(at_once=True)
    first = status.record.updated
    status._next = 0.0
    status.beat()
    assert status.record.updated > first


def test_a_phase_has_the_level_of_its_task_or_its_own(status: Status) -> None:
    with kept_sentences() as kept, status.task("pytorch", level=PHASE) as task:
        task.phase("libtorch: compile")
        task.phase("waiting for rattler-build", level=logging.DEBUG)
    assert [one.levelno for one in kept] == [PHASE, logging.DEBUG]


def test_the_time_left_is_that_of_the_last_run(status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(status_module, "monotonic", clock)
    for expected, passed, left in ((0.0, 30.0, None), (100.0, 25.0, 75.0), (100.0, 300.0, None)):
        status.plan({"pytorch": False}, expected)
        clock.now += passed
        status.publish(at_once=True)
        assert status.record.seconds_left == left


def test_a_step_may_end_twice(status: Status) -> None:
    status.note(Preparing(what="packing wheels", total=1))
    for _ in range(2):
        status.note(Preparing(what="packing wheels", done=1, total=1))
    assert not status.record.activities
    assert not status.record.ended


def test_threads_may_end_the_same_step(status: Status) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(300):
                status.note(Preparing(what="packing wheels", total=1))
                status.note(Preparing(what="packing wheels", done=1, total=1))
        except KeyError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert not status.record.activities


def test_late_threads_change_nothing_after_the_end_of_the_run(status: Status) -> None:
    task = status.task("pytorch")
    task.phase("libtorch: compile")
    status.note(Preparing(what="packing wheels", total=2))
    status.end(RunStatus.INTERRUPTED, "", 130, 1.0)
    task.advance(1, 2)
    task.idle()
    task.phase("libtorch: install")
    for done in range(3):
        status.note(Preparing(what="packing wheels", done=done, total=2))
    status.note(Preparing(what="fetching x", total=2))
    assert status.record.activities == []
    assert status.record.status is RunStatus.INTERRUPTED


class Watched:
    """The record of a status; each use of it without the status's lock is noted."""

    def __init__(self, status: Status) -> None:
        vars(self).update(record=status.record, lock=status.lock, unlocked=[])

    def __getattr__(self, name: str) -> Any:
        self.note(name)
        if name == "packages":
            return WatchedPackages(self)
        return getattr(vars(self)["record"], name)

    def __setattr__(self, name: str, value: object) -> None:
        self.note(name)
        setattr(vars(self)["record"], name, value)

    def note(self, name: str) -> None:
        if not cast(Any, vars(self)["lock"])._is_owned():
            vars(self)["unlocked"].append(name)


@dataclass(frozen=True)
class WatchedPackages:
    record: Watched

    def get(self, name: str, state: PackageState) -> PackageState:
        self.record.note(name)
        return state

    def __setitem__(self, name: str, _: PackageState) -> None:
        self.record.note(name)


def whole_task(status: Status) -> None:
    with status.task("a") as task:
        task.phase("compile", total=2)
        task.advance(1, 2)


def whole_step(status: Status) -> None:
    for done in range(3):
        status.note(Preparing(what="packing wheels", done=done, total=2))


CHANGES: dict[str, Callable[[Status], None]] = {
    "plan": lambda status: status.plan({"a": False}),
    "task": whole_task,
    "step": whole_step,
    "packages": lambda status: status.set_packages(["pytorch"], PackageState.BUILT),
    "tests left": lambda status: status.note_tests_left(only=True),
    "publish": lambda status: status.publish(at_once=True),
    "end": lambda status: status.end(RunStatus.DONE, "", 0, 1.0),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_no_thread_uses_the_record_without_its_lock(
    change: Callable[[Status], None], status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_file, "write", lambda *_: None)
    watched = Watched(status)
    status.record = cast(Any, watched)
    change(status)
    assert vars(watched)["unlocked"] == []


def test_packages_of_another_plan_are_not_shown(tmp_path: Path) -> None:
    """A build may leave files of former plans in its folder."""
    status = Status("x", tmp_path)
    status.plan({"a.conda": False})
    status.set_packages(["a.conda", "b.conda"], PackageState.BUILT)
    assert status.record.packages == {"a.conda": PackageState.BUILT}
