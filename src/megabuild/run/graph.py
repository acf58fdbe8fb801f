"""Runs dependent tasks: chooses the next one and its number of jobs, and retries or fails tasks with errors."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from groundwork.errors import BuildError, DeadlineError, FailureKind, MegabuildError, OutOfMemoryError
from groundwork.exhaustive import assert_never
from groundwork.jobs import Budget
from groundwork.text import Sign, counted
from megabuild.engine.archive import Archive
from megabuild.status.record import PackageState
from megabuild.status.status import Status, logger

#: Name of a task or package that must be available, or several names, of which one is enough.
Need: TypeAlias = "str | tuple[str, ...]"

#: Seconds between two calls of ``on_tick``; a message ends the wait at once.
_POLL_SECONDS = 0.25
#: Seconds before the retry after a network error.
NETWORK_PAUSE = 30.0
#: Failures that may not recur.
_PASSING = frozenset({FailureKind.NETWORK, FailureKind.KILLED, FailureKind.ENVIRONMENT})


class Stopped(Exception):
    """Raised in a task's thread when the task is to end."""


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """A task's finished packages, and its error."""

    archives: Sequence[Archive] = ()  #: packages that passed their tests and were verified
    seconds: Mapping[str, float]  #: by file name: duration of the build script
    error: MegabuildError | None = None  #: error of the other packages, if any


@dataclass(frozen=True, kw_only=True)
class Work:
    """A task, which runs in a thread of its own; the graph publishes its packages."""

    name: str
    #: does the task with a number of compile jobs; raises :class:`Stopped` once the event is set
    run: Callable[[int, threading.Event], TaskResult]
    budget: Budget  #: the compile jobs that it shares with other tasks
    needs: Sequence[Need] = ()  #: finished tasks and built packages that it waits for
    provides: Sequence[str] = ()  #: packages that it may announce while it runs
    cpu_seconds: int = 0  #: rough estimate
    alone: str = ""  #: tasks with the same word never run in parallel
    vital: bool = False  #: its failure fails the run
    ends_others: bool = True  #: if it is vital, its failure also ends all tasks that are not brief
    brief: bool = False  #: short enough to finish after the run has failed
    packages: Sequence[str] = ()  #: file names of the packages that fail with it
    stop: threading.Event = field(default_factory=threading.Event)  #: set to end it


@dataclass(frozen=True, kw_only=True)
class _Running:
    work: Work
    jobs: int  #: number of compile jobs that it got
    thread: threading.Thread


@dataclass(frozen=True, kw_only=True)
class _Failed:
    """A failed task."""

    name: str
    error: MegabuildError


@dataclass(frozen=True, kw_only=True)
class TaskEnded:
    """A task's thread has ended."""

    work: Work
    end: TaskResult | BaseException


@dataclass(frozen=True, kw_only=True)
class PackageAvailable:
    """A package can be used by other tasks, before its own task ends."""

    name: str  #: of its file


#: Messages of threads.
Inbox: TypeAlias = "queue.SimpleQueue[TaskEnded | PackageAvailable]"


class Graph:
    """Runs tasks until all are done or have failed; use it from one thread.

    ``done`` names finished tasks and built packages. ``failed`` maps tasks that cannot run to their errors; it grows.
    ``publish`` takes a task's result; its error fails the task. With ``keep_going``, a failed brief task does not end
    the others. ``on_tick`` is called several times a second; its error ends the run.
    """

    def __init__(
        self,
        works: Sequence[Work],
        *,
        done: Iterable[str],
        failed: dict[str, MegabuildError],
        status: Status,
        publish: Callable[[Work, TaskResult], None],
        inbox: Inbox,
        keep_going: bool = False,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        # the longest first: started last, it would run alone on an idle machine
        self._waiting = sorted(works, key=lambda work: -work.cpu_seconds)
        self._running: dict[str, _Running] = {}
        self._done = set(done)
        self._failed = failed
        self._error: _Failed | None = None  # the first that ends other tasks: its error is the run's
        self._late: _Failed | None = None  # the first that ends none: the run's if no other task failed
        self._ending_none: set[str] = set()  # the names of all failed tasks like that one
        self._retried: dict[str, float] = {}  # by task: the time of its retry
        self._status = status
        self._publish = publish
        self._inbox = inbox
        self._keep_going = keep_going
        self._on_tick = on_tick

    def run(self) -> None:
        """Run all tasks; afterwards, also after an error, none is running.

        Raises MegabuildError: A vital task failed; brief tasks with met needs were still done. If it ends no others:
            no other task failed.
        Raises DeadlineError: The time is over, and no task failed that ends others.
        Raises BaseException: An interrupt, or a bug in a task's thread.
        """
        try:
            self._run_all()
        except DeadlineError as stop:
            if self._error is None:
                _report(self._late)
                raise
            logger.warning("%s", stop.message)
        except BaseException as stop:
            if isinstance(stop, KeyboardInterrupt):
                logger.warning("%s: ending the running tasks", str(stop) or "Ctrl-C")
            _report(self._error)
            _report(self._late)
            raise
        finally:
            for running in self._running.values():
                running.work.stop.set()
            for running in self._running.values():
                running.thread.join()
        if self._error is not None:
            _report(self._late)
            raise self._error.error
        if self._late is None:
            return
        if self._failed.keys() - self._ending_none:  # an extension: the summary names it
            _report(self._late)
        else:
            raise self._late.error

    def _run_all(self) -> None:
        while self._waiting or self._running:
            self._on_tick()
            self._drop_hopeless()
            self._start_tasks()
            self._status.note_tests_left(only=self._has_only_brief_tasks())
            self._listen()

    def _drop_hopeless(self) -> None:
        """Fail the tasks whose needs no task will meet."""
        expected = set(self._done)
        for work in (*self._waiting, *self._running_works()):
            expected.update([work.name, *work.provides])
        waiting = self._waiting
        self._waiting = [work for work in waiting if not _unmet(work.needs, expected)]
        for work in waiting:
            lost = _unmet(work.needs, expected)
            if not lost:
                continue
            why = "which failed" if self._failed.keys() & set(lost) else "which no task makes"
            error = BuildError(f"needs {', '.join(lost)}, {why}")
            if work.vital and self._error is not None:  # that error is the cause
                self._failed[work.name] = error
            else:
                self._fail(work, error)

    def _has_only_brief_tasks(self) -> bool:
        left = [*self._waiting, *self._running_works()]
        return bool(left) and all(work.brief for work in left)

    def _running_works(self) -> list[Work]:
        return [running.work for running in self._running.values()]

    def _start_tasks(self) -> None:
        for work in list(self._waiting):
            if self._is_ready(work):
                jobs = work.budget.acquire(last=self._is_last(work))
                if jobs:
                    self._waiting.remove(work)
                    self._start(work, jobs)

    def _is_ready(self, work: Work) -> bool:
        if work.alone and any(other.alone == work.alone for other in self._running_works()):
            return False
        if time.monotonic() < self._retried.get(work.name, 0.0):
            return False
        return not _unmet(work.needs, self._done)

    def _is_last(self, work: Work) -> bool:
        """Return whether no other waiting task has the same budget."""
        return not any(other.budget is work.budget for other in self._waiting if other is not work)

    def _start(self, work: Work, jobs: int) -> None:
        if not work.vital:
            logger.info("%s: started", work.name)

        def go() -> None:
            try:
                end: TaskResult | BaseException = work.run(jobs, work.stop)
            except BaseException as error:  # any error: the loop must learn that the thread ended
                end = error
            self._inbox.put(TaskEnded(work=work, end=end))

        thread = threading.Thread(target=go, name=work.name)
        self._running[work.name] = _Running(work=work, jobs=jobs, thread=thread)
        thread.start()

    def _listen(self) -> None:
        """Handle all messages; wait a moment for the first one."""
        with contextlib.suppress(queue.Empty):
            message = self._inbox.get(timeout=_POLL_SECONDS)
            while True:
                self._handle(message)
                message = self._inbox.get_nowait()

    def _handle(self, message: TaskEnded | PackageAvailable) -> None:
        match message:
            case PackageAvailable(name=name):
                self._done.add(name)
            case TaskEnded(work=work, end=end):
                self._take_end(work, end)
            case never:
                assert_never(never)

    def _take_end(self, work: Work, end: TaskResult | BaseException) -> None:
        running = self._running.pop(work.name)
        running.thread.join()
        work.budget.release(running.jobs)
        if isinstance(end, TaskResult):
            self._finish(work, end)
        elif isinstance(end, MegabuildError):
            self._retry_or_fail(work, end)
        elif not isinstance(end, Stopped) or self._error is None:
            raise end

    def _finish(self, work: Work, result: TaskResult) -> None:
        """Publish a task's result and mark the task as done."""
        try:
            self._publish(work, result)
            error = result.error
        except MegabuildError as refused:
            error = refused
        if error is not None:
            self._retry_or_fail(work, error)
            return
        self._done.add(work.name)
        if not work.vital:
            logger.debug("%s: built", work.name)

    def _retry_or_fail(self, work: Work, error: MegabuildError) -> None:
        """Queue a task again if a retry can help; else fail it.

        If memory ran out on the machine, it gets half the jobs. Otherwise one retry is enough: the network may be back
        soon, a program may have been killed by mistake, and two processes of rattler-build may have unpacked the same
        package at the same time.
        """
        retry = self._prepare_retry(work, error)
        if not retry:
            self._fail(work, error)
            return
        logger.warning("%s: %s", error.message.splitlines()[0], retry)
        self._waiting.append(work)

    def _prepare_retry(self, work: Work, error: MegabuildError) -> str:
        """Halve the jobs, or set the time of the retry; return what happens next, or "" if a retry cannot help."""
        if isinstance(error, OutOfMemoryError) and error.fewer_jobs_help:
            jobs = work.budget.halve()
            return f"retrying with {counted(jobs, 'job')}" if jobs else ""
        if work.name in self._retried or error.failure is None or error.failure.kind not in _PASSING:
            return ""
        if error.failure.kind is not FailureKind.NETWORK:
            self._retried[work.name] = time.monotonic()
            return "retrying"
        self._retried[work.name] = time.monotonic() + NETWORK_PAUSE
        return f"retrying in {NETWORK_PAUSE:.0f} s"

    def _fail(self, work: Work, why: MegabuildError) -> None:
        why.packages = why.packages or frozenset(work.packages)
        self._failed[work.name] = why
        self._status.set_packages(why.packages, PackageState.FAILED)
        if work.vital and not work.ends_others:
            self._ending_none.add(work.name)
        failed = _Failed(name=work.name, error=why)
        if not self._is_runs_error(work, failed):
            _report(failed)
        if work.vital and work.ends_others and not (work.brief and self._keep_going):
            self._end_long_tasks()

    def _is_runs_error(self, work: Work, failed: _Failed) -> bool:
        """Keep a failed task if the run may end with its error; return whether it may."""
        if not work.vital or self._error is not None:
            return False
        if work.ends_others:
            self._error = failed
            return True
        if self._late is not None:
            return False
        self._late = failed
        return True

    def _end_long_tasks(self) -> None:
        """After the run has failed, end all tasks that are not brief."""
        self._waiting = [work for work in self._waiting if work.brief]
        for work in self._running_works():
            if not work.brief:
                work.stop.set()


def _report(failed: _Failed | None) -> None:
    """Log the error of a failed task, if there is one, with which the run does not end."""
    if failed is None:
        return
    why = failed.error
    message = f"{why.message}\n{why.remedy}" if why.remedy else why.message
    logger.error("%s %s: %s", Sign.failed, failed.name, message)


def _unmet(needs: Iterable[Need], available: Collection[str]) -> list[str]:
    """Return the needs that are not available; of alternatives, the first name."""
    unmet = []
    for need in needs:
        names = (need,) if isinstance(need, str) else need
        if not any(name in available for name in names):
            unmet.append(names[0])
    return unmet
