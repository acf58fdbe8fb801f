"""Which task goes next with how many jobs, and what becomes of tasks that fail, wait, or run out of memory."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field
from typing import cast

import pytest

from groundwork import events
from groundwork.errors import BuildError, IntegrityError, MegabuildError, OutOfMemoryError, SwapRefused
from groundwork.resources.jobs import Budget, Jobs
from megabuild.run.graph import Graph, Inbox
from megabuild.run.work import Made, Work


@dataclass
class Fake:
    """A task that takes little time and notes what it does."""

    name: str
    budget: Budget
    notes: list[str]
    needs: tuple[str, ...] = ()
    cpu_seconds: int = 0
    alone: str = ""
    vital: bool = False
    errors: list[Exception] = field(default_factory=list)
    duration: float = 0.02
    mends: str = ""
    jobs: list[int] = field(default_factory=list)

    def run(self, jobs: int) -> Made:
        self.jobs.append(jobs)
        self.notes.append(f"begin {self.name}")
        time.sleep(self.duration)
        self.notes.append(f"end {self.name}")
        if self.errors:
            raise self.errors.pop(0)
        return Made(seconds={})

    def mend(self, error: MegabuildError) -> str:
        return self.mends if isinstance(error, SwapRefused) else ""

    def retry_event(self, error: MegabuildError, jobs: int) -> events.Event:
        return events.JobsChanged(count=jobs, reason=self.name)


class Run:
    """One graph of fakes."""

    def __init__(self, *, jobs: int = 2, tasks: int = 2) -> None:
        self.notes: list[str] = []
        self.told: list[events.Event] = []
        self.failed: dict[str, MegabuildError] = {}
        self.fakes: list[Fake] = []
        self.publishing: BaseException | None = None
        self.published: list[str] = []
        self._budget = Budget(lambda: Jobs(count=jobs, reason=""), tasks=tasks)

    def add(self, name: str, **options: object) -> Fake:
        fake = Fake(name, self._budget, self.notes, **options)  # type: ignore[arg-type]
        self.fakes.append(fake)
        return fake

    def go(self) -> None:
        inbox: Inbox = queue.SimpleQueue()
        Graph(
            cast("list[Work]", self.fakes), done=(), failed=self.failed, tell=self.told.append,
            publish=self._publish, inbox=inbox, stop=threading.Event(),
        ).run()  # fmt: skip

    def _publish(self, work: Work, made: Made) -> None:
        if self.publishing is not None:
            raise self.publishing
        self.published.append(work.name)

    def ended(self) -> dict[str, str]:
        return {event.task: event.status for event in self.told if isinstance(event, events.TaskEnded)}

    def order(self, *notes: str) -> bool:
        return sorted(notes, key=self.notes.index) == list(notes)


def test_the_longest_way_to_the_end_goes_first_and_no_more_run_than_there_are_jobs() -> None:
    run = Run(jobs=1)
    run.add("cluster", cpu_seconds=340)
    run.add("scatter", cpu_seconds=110)
    run.add("sparse", cpu_seconds=410, needs=("scatter",))
    run.go()
    assert run.notes == [
        f"{what} {name}" for name in ("scatter", "sparse", "cluster") for what in ("begin", "end")
    ]


def test_tasks_share_the_jobs_and_the_last_one_gets_what_is_left() -> None:
    run = Run(jobs=8, tasks=3)
    first = [run.add(name, cpu_seconds=9 - number, duration=0.1) for number, name in enumerate("abc")]
    last = run.add("d", needs=("a", "b", "c"))
    run.go()
    assert [task.jobs for task in first] == [[3], [3], [2]]
    assert last.jobs == [8]


def test_a_task_that_needs_another_one_s_packages_waits_until_they_are_published() -> None:
    run = Run()
    run.add("sparse", needs=("scatter",))
    run.add("scatter", duration=0.1)
    run.go()
    assert run.order("end scatter", "begin sparse")
    assert run.published == ["scatter", "sparse"]


def test_a_failed_task_fails_those_that_need_it_and_no_others() -> None:
    run = Run()
    run.add("sparse", needs=("scatter",))
    run.add("scatter", errors=[BuildError("no such header", "install it")])
    run.add("cluster")
    run.go()
    assert (run.failed["scatter"].message, run.failed["scatter"].remedy) == ("no such header", "install it")
    assert "which failed" in run.failed["sparse"].message
    assert run.ended()["cluster"] == "built"


def test_the_failure_of_a_task_that_all_else_rests_on_ends_the_run() -> None:
    run = Run()
    run.add("pytorch", vital=True, errors=[BuildError("no such header")])
    run.add("scatter", needs=("pytorch",))
    with pytest.raises(BuildError, match="no such header"):
        run.go()
    assert "begin scatter" not in run.notes


def test_what_ran_out_of_memory_is_tried_with_half_the_jobs_until_there_is_but_one() -> None:
    run = Run(jobs=4, tasks=1)
    once = run.add("scatter", errors=[OutOfMemoryError("killed")])
    run.go()
    assert (once.jobs, run.ended()) == ([4, 2], {"scatter": "built"})
    run = Run(jobs=4, tasks=1)
    always = run.add("cluster", errors=[OutOfMemoryError(f"killed {number}") for number in range(9)])
    run.go()
    assert (always.jobs, run.ended()) == ([4, 2, 1], {"cluster": "failed"})
    assert [event.count for event in run.told if isinstance(event, events.JobsChanged)] == [2, 1]


def test_what_can_be_mended_is_tried_again() -> None:
    run = Run()
    run.add("pytorch", vital=True, errors=[SwapRefused("damaged\nlog")], mends="staging runs once more")
    run.go()
    assert run.notes.count("begin pytorch") == 2
    assert run.told == [events.Warned(message="damaged: staging runs once more")]


def test_what_shares_objects_does_not_run_at_the_same_time() -> None:
    run = Run(jobs=4, tasks=4)
    run.add("sparse-py311", alone="sparse", cpu_seconds=9, duration=0.1)
    run.add("sparse-py312", alone="sparse", cpu_seconds=8)
    run.add("cluster-py312", alone="cluster")
    run.go()
    assert run.order("end sparse-py311", "begin sparse-py312")
    assert run.order("begin cluster-py312", "end sparse-py311")


def test_a_fault_of_this_program_ends_the_run_and_no_thread_goes_on() -> None:
    run = Run()
    run.add("cluster", errors=[ZeroDivisionError()])
    run.add("scatter", duration=0.2)
    with pytest.raises(ZeroDivisionError):
        run.go()
    assert not [thread for thread in threading.enumerate() if thread.name in ("cluster", "scatter")]


def test_ctrl_c_while_a_package_is_published_ends_the_run() -> None:
    run = Run(jobs=1)
    run.add("cluster")
    run.add("scatter")
    run.publishing = KeyboardInterrupt("SIGTERM")
    with pytest.raises(KeyboardInterrupt):
        run.go()
    assert run.failed == {}
    assert "SIGTERM: ending what is running" in [
        one.message for one in run.told if isinstance(one, events.Warned)
    ]
    assert not [thread for thread in threading.enumerate() if thread.name in ("cluster", "scatter")]


def test_a_package_that_cannot_be_published_fails_its_task_alone() -> None:
    run = Run()
    run.add("cluster")
    run.publishing = IntegrityError("two owners of a file")
    run.go()
    assert run.failed["cluster"].message == "two owners of a file"


def test_a_need_that_nobody_makes_is_a_failure_and_not_an_endless_wait() -> None:
    run = Run()
    run.add("sparse", needs=("scatter",))
    run.go()
    assert "scatter, which nothing makes" in run.failed["sparse"].message
