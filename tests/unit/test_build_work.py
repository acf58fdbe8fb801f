"""What gets a second attempt, and what that waits for."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from groundwork import events
from groundwork.errors import BuildError, MegabuildError, OutOfSpaceError
from groundwork.resources.jobs import Budget, Jobs
from megabuild.isolation.base import Isolation
from megabuild.plan.plan import Plan
from megabuild.run import work
from megabuild.run.logfile import LogFile
from megabuild.run.work import Made, Run, Stopped, Work


class Task(Work):
    """One that waits as all do, and then has done nothing."""

    name = "task"

    def log(self) -> contextlib.AbstractContextManager[LogFile]:
        raise NotImplementedError

    def run(self, jobs: int) -> Made:
        self.pause()
        return Made(seconds={})

    def retry_event(self, error: MegabuildError, jobs: int) -> events.Event:
        raise NotImplementedError


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.setattr(work, "_SPACE_PAUSE", 0.01)
    run = Run(
        plan=cast(Plan, SimpleNamespace(staged_name="libtorch")),
        isolation=cast(Isolation, None),
        tell=lambda event: None,
        there=lambda name: None,
        stop=threading.Event(),
    )
    return Task(run, tmp_path, Budget(lambda: Jobs(count=1, reason=""), tasks=1))


def test_what_found_no_room_waits_for_it_and_may_do_so_again(task: Task) -> None:
    full = OutOfSpaceError("no room")
    for _ in range(3):
        assert task.mend(full) == "once more when there is room"
        task._run.held.set()
        thread = threading.Thread(target=task.run, args=(1,))
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        task._run.held.clear()
        thread.join(5)
        assert not thread.is_alive()
    assert task.mend(full)
    task.run(1)
    assert task.mend(full) == "", "twice in a row, while there is room for all that the run can tell"
    assert task.mend(BuildError("no")) == ""


def test_a_run_that_ends_is_not_waited_for(task: Task) -> None:
    task._run.held.set()
    task._run.stop.set()
    began = time.monotonic()
    with pytest.raises(Stopped):
        task.run(1)
    assert time.monotonic() - began < 5
