"""Several tasks at once: which goes next, who may run how many compilers, and what becomes of those that fail."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from megabuild.engine.archive import Archive
from megabuild.errors import MegabuildError, OutOfMemoryError
from megabuild.run import events
from megabuild.run.pyg.building import Stopped
from megabuild.run.pyg.governor import Governor
from megabuild.run.pyg.jobserver import Jobserver
from megabuild.run.pyg.tasks import Task

_POLL_SECONDS = 0.05


class Steps(Protocol):
    """A task's two steps; see :class:`megabuild.run.pyg.building.Building`."""

    task: Task
    seconds: float

    def build(self, jobs: int) -> None:
        """Make the packages."""

    def test(self, jobs: int, needs: Sequence[Path]) -> list[Archive]:
        """Test them."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """Why a task's packages are not there."""

    message: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class _Ended:
    """A thread's last word."""

    steps: Steps
    step: str
    archives: Sequence[Archive] = ()
    error: BaseException | None = None


Inbox: TypeAlias = "queue.SimpleQueue[events.Event | _Ended]"


class Schedule:
    """Runs tasks until all are done or have failed; to be used from one thread, in which everything is told.

    Parameters
    ----------
    tasks:
        Their steps.
    done:
        Package files of tasks that need not run, by task.
    failed:
        Tasks that cannot run, and why; grows.
    fifo:
        Says where a task's FIFO for the jobserver lies.
    governor:
        Says how many compile jobs there may be.
    tell:
        Takes events.
    finished:
        Takes a task's tested packages and returns the published files; what it raises fails the task.
    inbox:
        Where threads put their events.
    stop:
        Set when everything is to end.
    shares_objects:
        There is an object cache: what one Python's build of an extension compiles, the next one's finds, so they do not
        run at the same time.
    """

    def __init__(
        self,
        tasks: Sequence[Steps],
        *,
        done: Mapping[str, Sequence[Path]],
        failed: dict[str, Failed],
        fifo: Callable[[Task], Path],
        governor: Governor,
        tell: Callable[[events.Event], None],
        finished: Callable[[Steps, Sequence[Archive]], Sequence[Path]],
        inbox: Inbox,
        stop: threading.Event,
        shares_objects: bool = False,
    ) -> None:
        # long ones first, so that none of them is left over at the end with most of the machine idle
        self._to_build = sorted(tasks, key=lambda steps: -steps.task.cpu_seconds)
        self._expected = frozenset(steps.task.name for steps in tasks)
        self._compiling: list[str] = []
        self._shares_objects = shares_objects
        self._to_test: list[Steps] = []
        self._running: dict[str, threading.Thread] = {}
        self._done = dict(done)
        self._fifo = fifo
        self._governor = governor
        self._jobs = Jobserver(governor.limit.count)
        self._tell = tell
        self._finished = finished
        self._inbox = inbox
        self._stop = stop
        self._again: set[str] = set()
        self._failed = failed

    def run(self) -> None:
        """Do it. Whatever ends this, no task goes on afterwards.

        Raises
        ------
        BaseException
            What interrupted it, or a fault of this program in one of the threads.
        """
        try:
            while self._to_build or self._to_test or self._running:
                self._adjust()
                self._give_up()
                self._start()
                self._listen()
        finally:
            self._stop.set()
            for name, thread in list(self._running.items()):
                thread.join()
                self._jobs.close(name)

    def _adjust(self) -> None:
        changed = self._governor.tick()
        if changed is not None:
            self._limit(changed.count, changed.reason)
        else:
            self._jobs.balance()

    def _limit(self, count: int, reason: str) -> None:
        self._jobs.limit = count
        self._tell(events.JobsChanged(count=count, reason=reason))

    def _start(self) -> None:
        while self._jobs.room():
            steps = next((steps for steps in self._to_test if self._ready(steps.task.tests_after)), None)
            if steps is not None:
                self._to_test.remove(steps)
                self._begin(steps, "test")
                continue
            steps = next((steps for steps in self._to_build if self._may_build(steps.task)), None)
            if steps is None:
                return
            self._to_build.remove(steps)
            self._compiling.append(steps.task.extension)
            self._begin(steps, "build")

    def _may_build(self, task: Task) -> bool:
        waits = self._shares_objects and task.how == "compile" and task.extension in self._compiling
        return not waits and self._ready(task.builds_after)

    def _ready(self, names: Sequence[str]) -> bool:
        return all(name in self._done for name in names)

    def _give_up(self) -> None:
        """Fail the tasks that need one which has failed."""
        for waiting, kind in ((self._to_test, "tests_after"), (self._to_build, "builds_after")):
            for steps in list(waiting):
                needs = getattr(steps.task, kind)
                lost = [name for name in needs if name in self._failed]
                unknown = [name for name in needs if name not in self._done and name not in self._expected]
                if lost or unknown:
                    waiting.remove(steps)
                    why = (
                        f"{', '.join(lost)}, which failed"
                        if lost
                        else f"{', '.join(unknown)}, which nobody makes"
                    )
                    self._fail(steps.task, Failed(message=f"needs {why}"))

    def _begin(self, steps: Steps, step: str) -> None:
        task = steps.task
        self._jobs.open(task.name, self._fifo(task))
        self._tell(events.TaskStarted(task=task.name, step=step))
        limit = self._jobs.limit
        needs = [path for name in task.tests_after for path in self._done[name]] if step == "test" else []

        def work() -> None:
            try:
                if step == "build":
                    steps.build(limit)
                    self._inbox.put(_Ended(steps=steps, step=step))
                else:
                    self._inbox.put(_Ended(steps=steps, step=step, archives=steps.test(limit, needs)))
            except BaseException as error:  # whatever it is, the loop must hear of the thread's end
                self._inbox.put(_Ended(steps=steps, step=step, error=error))

        thread = threading.Thread(target=work, name=f"{task.name} {step}")
        self._running[task.name] = thread
        thread.start()

    def _listen(self) -> None:
        try:
            item = self._inbox.get(timeout=_POLL_SECONDS)
            while True:
                if isinstance(item, _Ended):
                    self._ended(item)
                else:
                    self._tell(item)
                item = self._inbox.get_nowait()
        except queue.Empty:
            return

    def _ended(self, ended: _Ended) -> None:
        steps, task = ended.steps, ended.steps.task
        self._running.pop(task.name).join()
        # the worker is gone with everything below it: whatever it held is free again
        self._jobs.close(task.name)
        if ended.step == "build":
            self._compiling.remove(task.extension)
        if ended.error is not None:
            self._failure(steps, ended.step, ended.error)
        elif ended.step == "build":
            self._to_test.append(steps)
            missing = [name for name in task.tests_after if name not in self._done]
            if missing:
                message = f"its test needs {', '.join(missing)}"
                self._tell(events.TaskEnded(task=task.name, status="waits", message=message))
        else:
            try:
                self._done[task.name] = self._finished(steps, ended.archives)
            except MegabuildError as error:
                self._fail(task, Failed(message=error.message, remedy=error.remedy))
            else:
                self._tell(events.TaskEnded(task=task.name, status="built"))

    def _failure(self, steps: Steps, step: str, error: BaseException) -> None:
        task = steps.task
        if isinstance(error, Stopped):
            self._tell(events.TaskEnded(task=task.name, status="stopped"))
        elif isinstance(error, OutOfMemoryError) and step == "build" and task.name not in self._again:
            self._again.add(task.name)
            self._governor.killed()
            self._limit(self._governor.limit.count, f"{task.name} ran out of memory and is built once more")
            self._to_build.append(steps)
        elif isinstance(error, MegabuildError):
            self._fail(task, Failed(message=error.message, remedy=error.remedy))
        else:
            raise error

    def _fail(self, task: Task, why: Failed) -> None:
        self._failed[task.name] = why
        message = "\n".join(text for text in (why.message, why.remedy) if text)
        self._tell(events.TaskEnded(task=task.name, status="failed", message=message))
