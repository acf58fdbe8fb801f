"""Tasks that need what others make: which goes next, with how many jobs, and what becomes of those that fail."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias

from groundwork.errors import BuildError, MegabuildError, OutOfMemoryError
from groundwork.text import UNICODE, counted
from megabuild.run.work import Need, Stopped, TaskResult, Work
from megabuild.status.status import Status, logger

#: For what comes without a message; a message ends the wait at once.
_POLL_SECONDS = 0.25

#: What threads put in: a task with how it ended, or the name of something that tasks may need and that is available.
Inbox: TypeAlias = "queue.SimpleQueue[str | tuple[Work, TaskResult | BaseException]]"


class Graph:
    """Runs tasks until all are done or have failed; to be used from one thread.

    ``done`` names what is available: tasks whose packages are published, packages that are built; ``failed``, which
    grows, the tasks that cannot run, and why. ``publish`` takes what a task has made; what it raises fails the task.
    ``stop`` is set when everything is to end. ``keep_going`` has the rest built where a brief task fails. ``on_tick``
    is called some times a second; what it raises ends the run.
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
        stop: threading.Event,
        keep_going: bool = False,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        # the longest first, so that it is not left over with most of the machine idle
        self._waiting = sorted(works, key=lambda work: -work.cpu_seconds)
        self._running: dict[str, tuple[Work, int, threading.Thread]] = {}
        self._done, self._failed = set(done), failed
        self._error: MegabuildError | None = None  # that of the run
        self._status, self._publish, self._inbox, self._stop = status, publish, inbox, stop
        self._keep_going, self._on_tick = keep_going, on_tick

    def run(self) -> None:
        """Run all tasks. Whatever ends this, none is left running.

        Raises MegabuildError: A vital task failed; brief ones that could still be done are.
        Raises BaseException: What interrupted it, or a fault of this program in a thread.
        """
        try:
            while self._waiting or self._running:
                self._on_tick()
                self._drop_hopeless()
                self._start_tasks()
                self._listen()
        except KeyboardInterrupt as stop:
            logger.warning("%s: ending what is running", str(stop) or "Ctrl-C")
            raise
        finally:
            self._stop.set()
            for _, _, thread in self._running.values():
                thread.join()
        if self._error is not None:
            raise self._error

    def _drop_hopeless(self) -> None:
        """Fail the tasks that need something which will not come."""
        active = [*self._waiting, *(work for work, _, _ in self._running.values())]
        expected = {name for work in active for name in (work.name, *work.provides)}
        expected |= self._done
        hopeless = [(work, lost) for work in self._waiting if (lost := _unmet(work.needs, expected))]
        names = {work.name for work, _ in hopeless}
        self._waiting = [work for work in self._waiting if work.name not in names]
        for work, lost in hopeless:
            why = "which failed" if self._failed.keys() & set(lost) else "which nothing makes"
            error = BuildError(f"needs {', '.join(lost)}, {why}")
            if work.vital and self._error is not None:  # that says it all
                self._failed[work.name] = error
            else:
                self._fail(work, error)

    def _start_tasks(self) -> None:
        busy = {work.alone for work, _, _ in self._running.values() if work.alone}
        for work in list(self._waiting):
            if work.alone in busy or _unmet(work.needs, self._done):
                continue
            others = (other for other in self._waiting if other is not work)
            jobs = work.budget.acquire(last=not any(other.budget is work.budget for other in others))
            if jobs:
                self._waiting.remove(work)
                self._start(work, jobs)
                busy.add(work.alone or work.name)

    def _start(self, work: Work, jobs: int) -> None:
        if not work.vital:
            logger.info("%s: started", work.name)

        def go() -> None:
            try:
                self._inbox.put((work, work.go(jobs)))
            except BaseException as error:  # whatever it is, the loop must hear of the thread's end
                self._inbox.put((work, error))

        thread = threading.Thread(target=go, name=work.name)
        self._running[work.name] = (work, jobs, thread)
        thread.start()

    def _listen(self) -> None:
        try:
            message = self._inbox.get(timeout=_POLL_SECONDS)
            while True:
                if isinstance(message, str):
                    self._done.add(message)
                else:
                    self._take_end(*message)
                message = self._inbox.get_nowait()
        except queue.Empty:
            return

    def _take_end(self, work: Work, end: TaskResult | BaseException) -> None:
        _, jobs, thread = self._running.pop(work.name)
        thread.join()
        work.budget.release(jobs)
        if isinstance(end, TaskResult):
            self._finish(work, end)
        elif isinstance(end, MegabuildError):
            self._retry_or_fail(work, end)
        elif not isinstance(end, Stopped) or self._error is None:
            raise end

    def _finish(self, work: Work, result: TaskResult) -> None:
        """Publish what a task has made, and note that it is done."""
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
            self._status.time_left.reach(f"task {work.name}")

    def _retry_or_fail(self, work: Work, error: MegabuildError) -> None:
        """Put a task back where another attempt can help: with half the jobs where memory ran out."""
        if isinstance(error, OutOfMemoryError):
            jobs = work.budget.halve()
            how = f"once more with {counted(jobs, 'job')}" if jobs else ""
        else:
            how = work.mend(error)
        if how:
            logger.warning("%s: %s", error.message.splitlines()[0], how)
            self._waiting.append(work)
        else:
            self._fail(work, error)

    def _fail(self, work: Work, why: MegabuildError) -> None:
        self._failed[work.name] = why
        if not work.vital:
            self._status.set_packages(work.labels, "failed")
            message = "\n".join(text for text in (why.message, why.remedy) if text)
            logger.error("%s %s: %s", UNICODE.failed, work.name, message)
            return
        self._error = self._error or why
        if not (work.brief and self._keep_going):  # end what is not brief: the run has failed
            self._waiting = [other for other in self._waiting if other.brief]
            for other, _, _ in self._running.values():
                if not other.brief:
                    other.cancel()


def _unmet(needs: Iterable[Need], available: Collection[str]) -> list[str]:
    """Return what is not available of what is needed; of alternatives the first."""
    alternatives = ((need,) if isinstance(need, str) else need for need in needs)
    return [names[0] for names in alternatives if not any(name in available for name in names)]
