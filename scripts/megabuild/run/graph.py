"""Tasks that need each other's packages: which goes next, with how many jobs, and what becomes of those that fail."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from groundwork import events
from groundwork.errors import BuildError, MegabuildError, OutOfMemoryError
from megabuild.run.work import Made, Work

_POLL_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The last message of a task's thread."""

    work: Work
    made: Made | None = None
    error: BaseException | None = None


Inbox: TypeAlias = "queue.SimpleQueue[events.Event | Ended]"


class Graph:
    """Runs tasks until all are done or have failed; to be used from one thread, in which all events are reported.

    ``done`` names the tasks whose packages are there; ``failed``, which grows, those that cannot run, and why.
    ``publish`` takes what a task has made; what it raises fails the task. Threads put their events into ``inbox``;
    ``stop`` is set when everything is to end.
    """

    def __init__(
        self,
        works: Sequence[Work],
        *,
        done: Iterable[str],
        failed: dict[str, MegabuildError],
        tell: Callable[[events.Event], None],
        publish: Callable[[Work, Made], None],
        inbox: Inbox,
        stop: threading.Event,
    ) -> None:
        # the longest way to the end first, so that it is not left over with most of the machine idle
        self._waiting = sorted(works, key=lambda work: -_way(work, works))
        self._running: dict[str, tuple[Work, int, threading.Thread]] = {}
        self._done = set(done)
        self._failed = failed
        self._expected = {work.name for work in works}
        self._tell = tell
        self._publish = publish
        self._inbox = inbox
        self._stop = stop

    def run(self) -> None:
        """Run all tasks. Whatever ends this, none goes on afterwards.

        Raises BaseException: What interrupted it, what ended a task that all else rests on, or a fault of this
            program in a thread.
        """
        try:
            while self._waiting or self._running:
                self._give_up()
                self._start()
                self._listen()
        except KeyboardInterrupt as stop:
            self._tell(events.Warned(message=f"{str(stop) or 'Ctrl-C'}: ending what is running"))
            raise
        finally:
            self._stop.set()
            for _, _, thread in self._running.values():
                thread.join()

    def _give_up(self) -> None:
        """Fail the tasks that need one which has failed."""
        for work in list(self._waiting):
            lost = [name for name in work.needs if name in self._failed]
            unknown = [name for name in work.needs if name not in self._done | self._expected]
            if lost or unknown:
                self._waiting.remove(work)
                why = "which failed" if lost else "which nothing makes"
                self._fail(work, BuildError(f"needs {', '.join(lost or unknown)}, {why}"))

    def _start(self) -> None:
        busy = {work.alone for work, _, _ in self._running.values() if work.alone}
        for work in list(self._waiting):
            if work.alone in busy or not all(name in self._done for name in work.needs):
                continue
            jobs = work.budget.take(last=len(self._waiting) == 1)
            if jobs:
                self._waiting.remove(work)
                self._begin(work, jobs)
                busy.add(work.alone or work.name)

    def _begin(self, work: Work, jobs: int) -> None:
        if not work.vital:
            self._tell(events.TaskStarted(task=work.name))

        def go() -> None:
            try:
                self._inbox.put(Ended(work=work, made=work.run(jobs)))
            except BaseException as error:  # whatever it is, the loop must hear of the thread's end
                self._inbox.put(Ended(work=work, error=error))

        thread = threading.Thread(target=go, name=work.name)
        self._running[work.name] = (work, jobs, thread)
        thread.start()

    def _listen(self) -> None:
        try:
            item = self._inbox.get(timeout=_POLL_SECONDS)
            while True:
                if isinstance(item, Ended):
                    self._ended(item)
                else:
                    self._tell(item)
                item = self._inbox.get_nowait()
        except queue.Empty:
            return

    def _ended(self, ended: Ended) -> None:
        work, error = ended.work, ended.error
        _, jobs, thread = self._running.pop(work.name)
        thread.join()
        work.budget.give_back(jobs)
        if ended.made is not None:
            try:
                self._publish(work, ended.made)
                error = ended.made.error
            except MegabuildError as refused:
                error = refused
        if error is None:
            self._done.add(work.name)
            if not work.vital:
                self._tell(events.TaskEnded(task=work.name, status="built"))
        elif not self._again(work, error):
            if work.vital or not isinstance(error, MegabuildError):
                raise error
            self._fail(work, error)

    def _again(self, work: Work, error: BaseException) -> bool:
        """Put a task back where another attempt can help."""
        if not isinstance(error, MegabuildError):
            return False
        if isinstance(error, OutOfMemoryError):
            jobs = work.budget.halve()
            if not jobs:
                return False
            self._tell(work.retry_event(error, jobs))
        elif what := work.mend(error):
            self._tell(events.Warned(message=f"{error.message.splitlines()[0]}: {what}"))
        else:
            return False
        self._waiting.append(work)
        return True

    def _fail(self, work: Work, why: MegabuildError) -> None:
        self._failed[work.name] = why
        message = "\n".join(text for text in (why.message, why.remedy) if text)
        self._tell(events.TaskEnded(task=work.name, status="failed", message=message))


def _way(work: Work, works: Sequence[Work]) -> int:
    """Return the CPU seconds from a task's start to the end of everything that needs it, one after another."""
    after = (_way(other, works) for other in works if work.name in other.needs)
    return work.cpu_seconds + max(after, default=0)
