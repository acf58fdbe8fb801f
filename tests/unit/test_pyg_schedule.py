"""Which task goes next, and what becomes of tasks that fail, wait, or run out of memory."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from megabuild.engine.archive import Archive
from megabuild.errors import BuildError, IntegrityError, OutOfMemoryError
from megabuild.run import events
from megabuild.run.pyg.compilers import Seen
from megabuild.run.pyg.governor import Governor
from megabuild.run.pyg.schedule import Failed, Inbox, Schedule, Steps
from megabuild.run.pyg.tasks import Task

GB = 1_000_000_000


@dataclass
class Fake:
    """A task whose steps take no time and note what they do."""

    task: Task
    notes: list[str]
    errors: list[Exception] = field(default_factory=list)
    duration: float = 0.02
    seconds: float = 0.0
    needs: Sequence[Path] = ()

    def build(self, jobs: int) -> None:
        self.notes.append(f"build {self.task.name}")
        time.sleep(self.duration)
        if self.errors:
            raise self.errors.pop(0)
        self.notes.append(f"built {self.task.name}")

    def test(self, jobs: int, needs: Sequence[Path]) -> list[Archive]:
        self.needs = needs
        self.notes.append(f"test {self.task.name}")
        return []


class Run:
    """One schedule over fakes."""

    def __init__(self, folder: Path, *, jobs: int = 2, shares: bool = False) -> None:
        self.notes: list[str] = []
        self.told: list[events.Event] = []
        self.failed: dict[str, Failed] = {}
        self.fakes: list[Fake] = []
        self.publishing: BaseException | None = None
        self._folder = folder
        self._jobs = jobs
        self._shares = shares

    def add(self, extension: str, python: str = "3.12", **options: object) -> Fake:
        after = {key: options.pop(key) for key in ("builds_after", "tests_after") if key in options}
        task = Task(
            extension=extension, python=python, recipe=Path("recipe.yaml"), packages=(),
            overrides={"python": (f"{python}.* *_cpython",)}, **after,  # type: ignore[arg-type]
        )  # fmt: skip
        fake = Fake(task, self.notes, **options)  # type: ignore[arg-type]
        self.fakes.append(fake)
        return fake

    def go(self) -> None:
        inbox: Inbox = queue.SimpleQueue()
        governor = Governor(ceiling=self._jobs, per_job=GB, free=lambda: 100 * GB, look=Seen)
        Schedule(
            self.fakes, done={}, failed=self.failed, fifo=lambda task: self._folder / task.name,
            governor=governor, tell=self.told.append,
            finished=self.finished,
            inbox=inbox, stop=threading.Event(), shares_objects=self._shares,
        ).run()  # fmt: skip

    def finished(self, steps: Steps, archives: Sequence[Archive]) -> list[Path]:
        if self.publishing is not None:
            raise self.publishing
        return [Path(f"/channel/{steps.task.name}.conda")]

    def ended(self) -> dict[str, str]:
        return {event.task: event.status for event in self.told if isinstance(event, events.TaskEnded)}


def test_the_longest_goes_first_and_no_more_run_than_there_are_jobs(tmp_path: Path) -> None:
    run = Run(tmp_path, jobs=1)
    for name in ("pytorch_spline_conv", "pytorch_sparse", "pytorch_cluster"):
        run.add(name)
    run.go()
    began = [note for note in run.notes if note.startswith("build ")]
    assert began == [f"build pytorch_{name}-py312" for name in ("sparse", "cluster", "spline_conv")]
    running = 0
    for note in run.notes:
        running += {"build": 1, "built": -1}.get(note.split()[0], 0)
        assert running <= 1


def test_a_test_waits_for_the_packages_it_needs_and_gets_them(tmp_path: Path) -> None:
    run = Run(tmp_path)
    sparse = run.add("pytorch_sparse", tests_after=("pytorch_scatter-py312",))
    run.add("pytorch_scatter", duration=0.3)
    run.go()
    assert run.notes.index("built pytorch_sparse-py312") < run.notes.index("built pytorch_scatter-py312")
    assert run.notes[-2:] == ["test pytorch_scatter-py312", "test pytorch_sparse-py312"]
    assert sparse.needs == [Path("/channel/pytorch_scatter-py312.conda")]
    assert any(isinstance(event, events.TaskEnded) and event.status == "waits" for event in run.told)


def test_a_build_that_needs_another_package_waits_for_it(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.add("pytorch_sparse", builds_after=("pytorch_scatter-py312",))
    run.add("pytorch_scatter")
    run.go()
    assert run.notes.index("test pytorch_scatter-py312") < run.notes.index("build pytorch_sparse-py312")


def test_a_failed_task_fails_those_that_need_it_and_no_others(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.add("pytorch_sparse", tests_after=("pytorch_scatter-py312",))
    run.add("pytorch_scatter", errors=[BuildError("no such header", "install it")])
    run.add("pytorch_cluster")
    run.go()
    assert run.failed["pytorch_scatter-py312"] == Failed(message="no such header", remedy="install it")
    assert "which failed" in run.failed["pytorch_sparse-py312"].message
    assert run.ended()["pytorch_cluster-py312"] == "built"


def test_what_ran_out_of_memory_is_built_once_more_and_not_for_ever(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.add("pytorch_cluster", errors=[OutOfMemoryError("killed")])
    run.add("pytorch_scatter", errors=[OutOfMemoryError("killed"), OutOfMemoryError("killed again")])
    run.go()
    assert run.ended() == {"pytorch_cluster-py312": "built", "pytorch_scatter-py312": "failed"}
    assert run.failed["pytorch_scatter-py312"].message == "killed again"


def test_with_an_object_cache_one_python_compiles_what_the_next_one_finds(tmp_path: Path) -> None:
    run = Run(tmp_path, jobs=4, shares=True)
    for python in ("3.11", "3.12"):
        run.add("pytorch_sparse", python, duration=0.1)
    run.add("pytorch_cluster", duration=0.1)
    run.go()
    assert run.notes.index("built pytorch_sparse-py311") < run.notes.index("build pytorch_sparse-py312")
    assert run.notes.index("build pytorch_cluster-py312") < run.notes.index("built pytorch_sparse-py311")


def test_a_fault_of_this_program_ends_the_run_and_no_thread_goes_on(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.add("pytorch_cluster", errors=[ZeroDivisionError()])
    run.add("pytorch_scatter", duration=0.2)
    with pytest.raises(ZeroDivisionError):
        run.go()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pytorch_")]


def test_ctrl_c_while_a_package_is_published_ends_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path, jobs=1)
    run.add("pytorch_cluster")
    run.add("pytorch_scatter")
    run.publishing = KeyboardInterrupt("SIGTERM")
    with pytest.raises(KeyboardInterrupt):
        run.go()
    assert run.failed == {}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pytorch_")]


def test_a_package_that_cannot_be_published_fails_its_task_alone(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.add("pytorch_cluster")
    run.publishing = IntegrityError("two owners of a file")
    run.go()
    assert run.failed["pytorch_cluster-py312"].message == "two owners of a file"


def test_a_need_that_nobody_makes_is_a_failure_and_not_an_endless_wait(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.add("pytorch_sparse", tests_after=("pytorch_scatter-py312",))
    run.go()
    assert "pytorch_scatter-py312" in run.failed["pytorch_sparse-py312"].message
