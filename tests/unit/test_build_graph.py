"""Which task goes next with how many jobs, and what becomes of tasks that fail, wait, or run out of memory."""

from __future__ import annotations

import logging
import queue
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from tiny import kept_sentences

from groundwork.errors import (
    BuildError,
    DeadlineError,
    FailureDetails,
    FailureKind,
    IntegrityError,
    MegabuildError,
    OutOfMemoryError,
    OutOfSpaceError,
)
from groundwork.jobs import Budget
from megabuild.engine.archive import Archive
from megabuild.run import graph
from megabuild.run.graph import Graph, Inbox, PackageAvailable, Stopped, TaskResult, Work
from megabuild.run.shelf import Shelf
from megabuild.status.record import PackageState
from megabuild.status.status import Status


@dataclass
class Fake:
    """A task that takes little time and notes what it does."""

    name: str
    notes: list[str]
    inbox: Inbox
    provides: tuple[str, ...]
    errors: list[Exception]
    duration: float
    jobs: list[int] = field(default_factory=list)

    def run(self, jobs: int, stop: threading.Event) -> TaskResult:
        self.jobs.append(jobs)
        self.notes.append(f"begin {self.name}")
        for name in self.provides:
            self.inbox.put(PackageAvailable(name=name))
        if stop.wait(self.duration):
            raise Stopped(self.name)
        self.notes.append(f"end {self.name}")
        if self.errors:
            raise self.errors.pop(0)
        return TaskResult(seconds={}, archives=[cast(Archive, self.name)])


class Run:
    """One graph of fakes."""

    def __init__(self, *, jobs: int = 2, tasks: int = 2, keep_going: bool = False) -> None:
        self.keep_going = keep_going
        self.on_tick: Callable[[], None] = lambda: None
        self.notes: list[str] = []
        self.said: list[logging.LogRecord] = []
        self.failed: dict[str, MegabuildError] = {}
        self.works: list[Work] = []
        self._inbox: Inbox = queue.SimpleQueue()
        self.status = Status("x", Path("/nonexistent"))
        self.publishing: BaseException | None = None
        self.published: list[str] = []
        self._budget = Budget(jobs, tasks=tasks)

    def add(
        self, name: str, *, errors: list[Exception] | None = None, duration: float = 0.02,
        provides: tuple[str, ...] = (), **options: Any,
    ) -> Fake:  # fmt: skip
        fake = Fake(name, self.notes, self._inbox, provides, errors or [], duration)
        self.works.append(Work(name=name, run=fake.run, budget=self._budget, provides=provides, **options))
        return fake

    def go(self) -> None:
        tasks = Graph(
            self.works, done=(), failed=self.failed, status=self.status,
            publish=self._publish, inbox=self._inbox, keep_going=self.keep_going, on_tick=lambda: self.on_tick(),
        )  # fmt: skip
        with kept_sentences() as self.said:
            tasks.run()

    def _publish(self, work: Work, made: TaskResult) -> None:
        if self.publishing is not None:
            raise self.publishing
        self.published.append(work.name)

    def ended(self) -> dict[str, str]:
        """By task: whether it was built or has failed."""
        names = {work.name for work in self.works}
        failed = dict.fromkeys(names & self.failed.keys(), "failed")
        sentences = {record.getMessage() for record in self.said}
        return failed | {name: "built" for name in names if f"{name}: built" in sentences}

    def order(self, *notes: str) -> bool:
        return sorted(notes, key=self.notes.index) == list(notes)


def test_a_task_that_nothing_has_stopped_is_not_lost() -> None:
    run = Run()
    run.add("a", errors=[Stopped("a")])
    with pytest.raises(Stopped):
        run.go()


def test_a_package_that_cannot_be_published_is_the_error_of_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the failed test of another one, after which the task would be tried again."""
    run = Run()
    error = BuildError("the test of another one failed")
    monkeypatch.setattr(Fake, "run", lambda *_: TaskResult(seconds={}, archives=[], error=error))
    run.add("a")
    run.publishing = IntegrityError("two packages have share/a")
    run.go()
    assert run.failed == {"a": run.publishing}


def test_the_longest_goes_first_and_no_more_run_than_there_are_jobs() -> None:
    run = Run(jobs=1)
    run.add("cluster", cpu_seconds=340)
    run.add("scatter", cpu_seconds=110)
    run.add("sparse", cpu_seconds=410, needs=("scatter",))
    run.go()
    assert run.notes == [
        f"{what} {name}" for name in ("cluster", "scatter", "sparse") for what in ("begin", "end")
    ]


def test_tasks_share_the_jobs_and_the_last_one_gets_what_is_left() -> None:
    run = Run(jobs=8, tasks=3)
    first = [run.add(name, cpu_seconds=9 - number, duration=0.1) for number, name in enumerate("abc")]
    last = run.add("d", needs=("a", "b", "c"))
    run.add("of other jobs", needs=("d",))
    run.works[-1] = replace(run.works[-1], budget=Budget(1))
    run.go()
    assert [task.jobs for task in first] == [[3], [3], [2]]
    assert last.jobs == [8]


def test_the_record_tells_when_only_tests_are_left() -> None:
    run = Run()
    notes: list[str] = []  # at the moment of the change
    run.status.watch = lambda: notes.extend(run.notes)
    run.add("libtorch", duration=0.1)
    run.add("test of libtorch", needs=("libtorch",), brief=True)
    run.add("scatter", needs=("test of libtorch",))
    run.add("test of scatter", needs=("scatter",), brief=True, duration=0.1)
    run.go()
    assert run.status.record.only_tests_left
    assert "end scatter" in notes, "the extension waits for a test: more is to be compiled"
    assert "end test of scatter" not in notes


def test_a_failed_task_fails_those_that_need_it_and_no_others() -> None:
    run = Run()
    run.add("sparse", needs=("scatter",))
    run.add("scatter", errors=[BuildError("no such header", "install it")])
    run.add("cluster")
    run.add("spline", needs=(("gone", "cluster"),))
    run.add("lonely", needs=("nobody",))
    run.failed["metis"] = BuildError("cannot be made")
    run.go()
    assert (run.failed["scatter"].message, run.failed["scatter"].remedy) == ("no such header", "install it")
    assert "which failed" in run.failed["sparse"].message
    assert run.failed["lonely"].message == "needs nobody, which no task makes", "no endless wait"
    assert [run.ended()[name] for name in ("cluster", "spline")] == ["built", "built"], (
        "one of several is enough"
    )


def test_the_packages_that_an_error_names_have_failed_or_all_of_its_task() -> None:
    run = Run()
    run.status.plan(dict.fromkeys(("lib", "py", "scatter", "sparse", "cluster"), False))
    error = BuildError("no such header")
    error.packages = frozenset({"lib"})
    run.add("build", errors=[error])
    run.add("pyg", packages=("scatter", "sparse"), errors=[BuildError("no such header")])
    run.go()
    states = run.status.record.packages
    failed = {name for name, state in states.items() if state is PackageState.FAILED}
    assert failed == {"lib", "scatter", "sparse"}
    assert run.failed["pyg"].packages == {"scatter", "sparse"}, "the summary names them"


def test_what_ran_out_of_memory_is_tried_with_half_the_jobs_until_there_is_but_one() -> None:
    run = Run(jobs=4, tasks=1)
    once = run.add("scatter", errors=[OutOfMemoryError("killed")])
    run.go()
    assert (once.jobs, run.ended()) == ([4, 2], {"scatter": "built"})
    run = Run(jobs=4, tasks=1)
    always = run.add("cluster", errors=[OutOfMemoryError(f"killed {number}") for number in range(9)])
    run.go()
    assert (always.jobs, run.ended()) == ([4, 2, 1], {"cluster": "failed"})
    said = [record.getMessage() for record in run.said]
    assert [re.findall(r"\d+", text) for text in said if "retrying" in text] == [["0", "2"], ["1", "1"]]


def test_a_program_that_got_no_memory_for_another_reason_is_not_tried_with_fewer_jobs() -> None:
    run = Run(jobs=4, tasks=1)
    limited = run.add("scatter", errors=[OutOfMemoryError("ulimit -v", fewer_jobs_help=False)])
    run.go()
    assert (limited.jobs, run.ended()) == ([4], {"scatter": "failed"})


def failure_of(kind: str) -> BuildError:
    error = BuildError(f"{kind} failed\nlog")
    error.failure = FailureDetails(kind=FailureKind(kind))
    return error


@pytest.mark.parametrize("kind", ["network", "killed", "environment"])
def test_a_retry_that_fails_as_well_is_the_last(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "NETWORK_PAUSE", 0.0)
    run = Run()
    fake = run.add("task", errors=[failure_of(kind) for _ in range(5)])
    run.go()
    assert (len(fake.jobs), run.ended()) == (2, {"task": "failed"})


def test_what_a_retry_can_help_is_tried_once_more_and_the_network_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graph, "NETWORK_PAUSE", 0.4)
    run = Run()
    run.add("killed", errors=[failure_of("killed"), failure_of("killed")])
    run.add("network", errors=[failure_of("network")])
    run.add("compiler", errors=[failure_of("compiler")])
    began = time.monotonic()
    run.go()
    assert time.monotonic() - began >= 0.4
    assert [run.notes.count(f"begin {name}") for name in ("killed", "network", "compiler")] == [2, 2, 1]
    assert run.ended() == {"killed": "failed", "network": "built", "compiler": "failed"}
    said = {record.getMessage() for record in run.said}
    assert {"killed failed: retrying", "network failed: retrying in 0 s"} <= said


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
    run.add("scatter", duration=60)
    with pytest.raises(ZeroDivisionError):
        run.go()
    assert "end scatter" not in run.notes
    assert not [thread for thread in threading.enumerate() if thread.name in ("cluster", "scatter")]


def test_ctrl_c_while_a_package_is_published_ends_the_run() -> None:
    run = Run(jobs=1)
    run.add("cluster")
    run.add("scatter")
    run.publishing = KeyboardInterrupt("SIGTERM")
    with pytest.raises(KeyboardInterrupt):
        run.go()
    assert run.failed == {}
    assert [record for record in run.said if record.getMessage().startswith("SIGTERM: ")]
    assert not [thread for thread in threading.enumerate() if thread.name in ("cluster", "scatter")]


def test_a_package_that_cannot_be_published_fails_its_task_alone() -> None:
    run = Run()
    run.add("cluster")
    run.publishing = IntegrityError("two owners of a file")
    run.go()
    assert run.failed["cluster"].message == "two owners of a file"


def a_build_and_its_tests(run: Run, *, errors: list[Exception]) -> None:
    """As PyTorch's: libtorch's test fails with the errors."""
    run.add("build", vital=True, provides=("lib", "py"), duration=0.5)
    run.add("test lib", vital=True, brief=True, needs=("lib",), errors=errors)
    run.add("test py", vital=True, brief=True, needs=("py", "test lib"), duration=0.1)
    run.add("test other", vital=True, brief=True, needs=("lib",), duration=0.2)
    run.add("scatter", needs=("build", "test py"))


def test_built_packages_are_tested_and_published_in_order_of_need_while_others_are_built() -> None:
    run = Run(jobs=4, tasks=4)
    a_build_and_its_tests(run, errors=[])
    run.go()
    assert run.order("end test lib", "begin test py", "end test py", "end build", "begin scatter")
    assert run.published == ["test lib", "test py", "test other", "build", "scatter"]


@pytest.mark.parametrize("jobs", [4, 2], ids=["running", "waiting for a job"])
def test_a_failed_test_ends_the_build_and_tests_that_can_be_brought_to_their_end_are(jobs: int) -> None:
    run = Run(jobs=jobs, tasks=jobs)
    a_build_and_its_tests(run, errors=[BuildError("wrong numbers")])
    with pytest.raises(BuildError, match="wrong numbers"):
        run.go()
    assert run.notes[-1] == "end test other"
    assert not {"end build", "begin test py"} & set(run.notes)
    assert run.published == ["test other"]
    errors = [record.getMessage() for record in run.said if record.levelno == logging.ERROR]
    assert not errors, "the run's own error says why the other tests did not begin"


def test_a_run_that_keeps_going_publishes_nothing_without_what_it_needs() -> None:
    run = Run(jobs=4, tasks=4, keep_going=True)
    a_build_and_its_tests(run, errors=[BuildError("wrong numbers")])
    run.add("cluster", needs=("build",))
    with pytest.raises(BuildError, match="wrong numbers"):
        run.go()
    assert run.published == ["test other", "build", "cluster"]
    assert run.ended() == {"cluster": "built", "scatter": "failed", "test lib": "failed", "test py": "failed"}


def test_a_failed_test_that_ends_no_others_fails_the_run_after_them() -> None:
    run = Run(jobs=4, tasks=4)
    run.add("build", vital=True, provides=("lib",), duration=0.3)
    errors: list[Exception] = [BuildError("3 tests failed")]
    run.add("test numerics", vital=True, ends_others=False, needs=("lib",), errors=errors)
    run.add("scatter", needs=("build",))
    with pytest.raises(BuildError, match="3 tests failed"):
        run.go()
    assert run.published == ["build", "scatter"]


def test_another_failure_of_the_run_comes_before_failed_tests_of_pytorch() -> None:
    run = Run(jobs=4, tasks=4)
    run.add("build", vital=True, duration=0.3, errors=[BuildError("no such header")])
    tests: list[Exception] = [BuildError("3 tests failed", "repeat them")]
    run.add("test numerics", vital=True, ends_others=False, errors=tests)
    with pytest.raises(BuildError, match="no such header"):
        run.go()
    said = [record.getMessage() for record in run.said if record.levelno == logging.ERROR]
    assert said == ["✗ test numerics: 3 tests failed\nrepeat them"]


@pytest.mark.parametrize("cannot_be_made", [False, True])
def test_a_failed_extension_comes_before_failed_tests_of_pytorch(cannot_be_made: bool) -> None:
    """Their exit code says that nothing else failed."""
    run = Run(jobs=4, tasks=4)
    run.add("build", vital=True)
    for python in ("3.12", "3.13"):
        tests: list[Exception] = [BuildError(f"3 tests failed with {python}")]
        run.add(f"test numerics {python}", vital=True, ends_others=False, needs=("build",), errors=tests)
    if cannot_be_made:
        run.failed["scatter"] = BuildError("no wheel fits")
    else:
        run.add("scatter", needs=("build",), errors=[BuildError("no such header")], duration=0.1)
    run.go()
    assert run.failed.keys() == {"test numerics 3.12", "test numerics 3.13", "scatter"}
    said = [record.getMessage() for record in run.said if record.levelno == logging.ERROR]
    expected = [
        "✗ test numerics 3.12: 3 tests failed with 3.12",
        "✗ test numerics 3.13: 3 tests failed with 3.13",
    ]
    if not cannot_be_made:
        expected.append("✗ scatter: no such header")
    assert sorted(said) == sorted(expected)


@pytest.mark.parametrize(
    "stop", [DeadlineError("6 h are over"), KeyboardInterrupt(), OutOfSpaceError("full")]
)
@pytest.mark.parametrize("ends_others", [True, False])
def test_a_stopped_run_reports_what_failed_before(stop: BaseException, ends_others: bool) -> None:
    run = Run(jobs=4, tasks=4)
    run.add("build", vital=True, brief=True, duration=60)
    errors: list[Exception] = [BuildError("3 tests failed")]
    run.add("test", vital=True, ends_others=ends_others, errors=errors)

    def tick() -> None:
        if run.failed:
            raise stop

    run.on_tick = tick
    # a deadline is no success of a run that has failed already
    expected = BuildError if ends_others and isinstance(stop, DeadlineError) else type(stop)
    with pytest.raises(expected):
        run.go()
    said = [record.getMessage() for record in run.said if record.levelno >= logging.WARNING]
    if expected is BuildError:
        assert said == ["6 h are over"]
    else:
        assert "✗ test: 3 tests failed" in said


@pytest.mark.parametrize("keep_going", [False, True])
def test_a_long_test_ends_when_the_run_has_failed(keep_going: bool) -> None:
    run = Run(jobs=4, tasks=4, keep_going=keep_going)
    run.add("build", vital=True, provides=("lib",), duration=0.1, errors=[BuildError("no such header")])
    run.add("test numerics", vital=True, ends_others=False, needs=("lib",), duration=60)
    with pytest.raises(BuildError, match="no such header"):
        run.go()
    assert "end test numerics" not in run.notes


def test_a_rejected_package_is_put_aside_and_leaves_the_build_s_folder(tmp_path: Path) -> None:
    package = tmp_path / "out" / "linux-64" / "broken-1-0.conda"
    package.parent.mkdir(parents=True)
    package.write_bytes(b"a package")
    shelf = Shelf(tmp_path, queue.SimpleQueue())
    shelf.add(package, 2.0)
    (copy,) = shelf.copies()
    shelf.reject(copy)
    assert package.exists(), "packages that are being built may need it"
    shelf.drop_rejected()
    assert not package.exists()
    assert [path.read_bytes() for path in tmp_path.glob("tests/**/broken-1-0.conda")] == [b"a package"] * 2


def test_what_is_refused_at_its_publication_is_not_there_for_others() -> None:
    run = Run()
    run.add("scatter")
    run.add("sparse", needs=("scatter",))
    run.publishing = IntegrityError("another package has its files")
    run.go()
    assert run.published == []
    assert "begin sparse" not in run.notes
    assert "which failed" in run.failed["sparse"].message


def test_the_first_failure_is_the_runs() -> None:
    run = Run(jobs=2, keep_going=True)
    run.add("one", vital=True, brief=True, errors=[BuildError("the first")])
    run.add("two", vital=True, brief=True, duration=0.2, errors=[BuildError("the second")])
    with pytest.raises(BuildError, match="the first"):
        run.go()
    assert set(run.failed) == {"one", "two"}
