"""The status of a run: one record, which any thread changes under a lock. Sentences go to `logging`.

Levels of the logger ``megabuild``: ``INFO`` and above for people, ``PHASE`` for people without live lines, ``DEBUG``
for the log file only.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from time import monotonic

import psutil

from groundwork.machine import disk_free, measure, tree_memory
from groundwork.progress import WARNING, Preparing
from megabuild.status import record as state_file
from megabuild.status.record import Activity, PackageState, RunRecord, RunStatus
from megabuild.status.recorder import HistoryRecorder

PHASE = 15
logging.addLevelName(PHASE, "PHASE")
logger = logging.getLogger("megabuild")
logger.setLevel(logging.DEBUG)
logger.propagate = False
logger.addHandler(logging.NullHandler())
#: Every line of the build scripts, as ``SOURCE: LINE``; off unless requested.
script_lines = logging.getLogger("megabuild.lines")
script_lines.propagate = False
script_lines.setLevel(logging.CRITICAL)

_SECONDS = 1.0
#: Final states of a package.
_FINAL = frozenset({PackageState.THERE, PackageState.PUBLISHED, PackageState.FAILED})


class Task(AbstractContextManager["Task"]):
    """A row of the status, from its first phase to the end of the context."""

    def __init__(self, status: Status, name: str, level: int) -> None:
        self._status = status
        self.name = name
        self.level = level
        self._activity: Activity | None = None

    def __exit__(self, *_: object) -> None:
        self.idle()

    def phase(
        self, what: str, *, total: int = 0, unit: str = "", level: int = 0, expected: float = 0.0
    ) -> None:
        """Begin a phase and end the one before; after the end of the run, only log.

        ``expected``: its seconds by the plan's table; 0 if unknown.
        """
        self.begin(what, total=total, unit=unit, expected=expected)
        _log_phase(level or self.level, what)
        self._status.publish(at_once=True)

    def begin(self, what: str, *, total: int = 0, unit: str = "", expected: float = 0.0) -> None:
        """Do as :meth:`phase`, but neither log nor publish, so that the caller may hold the status's lock."""
        with self._status.lock:
            self.idle()
            record = self._status.record
            if record.status is RunStatus.CHECKING:
                record.status = RunStatus.BUILDING
            if not record.ended:
                self._activity = Activity(
                    task=self.name, what=what, since=time.time(), total=total, unit=unit, expected=expected
                )
                record.activities.append(self._activity)

    def advance(self, done: int, total: int) -> None:
        """Set the phase's progress."""
        with self._status.lock:
            activity = self._activity
            if activity is None or (activity.done, activity.total) == (done, total):
                return
            activity.done = done
            activity.total = total
        if done == total and not activity.unit:
            logger.log(self.level, "%s %d/%d", activity.what, done, total)

    def idle(self) -> None:
        """End the phase, if there is one."""
        with self._status.lock:
            if self._activity is not None:
                self._status.end_activity(self._activity)
            self._activity = None


def _log_phase(level: int, what: str) -> None:
    logger.log(level, what, extra={"begins_phase": True})


class Status:
    def __init__(self, config: str, folder: Path) -> None:
        self.lock = threading.RLock()
        self.watch: Callable[[], None] = lambda: None  #: called whenever the record is published
        self.keeps_file = False  #: a run with nothing to do leaves the record of the last run in its file
        self._folder = folder
        self._next = 0.0  # the time of the next publication
        self._next_measure = 0.0
        self._is_published = False  # a run that waits for its lock must not replace another run's record
        self._expected = 0.0
        self._began = monotonic()
        self._preparing: dict[str, Task] = {}
        machine = measure()
        self.record = RunRecord(
            config=config,
            began=time.time(),
            pid=os.getpid(),
            process_began=psutil.Process().create_time(),
            host=socket.gethostname(),
            memory_most=machine.memory,
        )
        self._history = HistoryRecorder(folder, self.record.began, machine)

    def plan(self, packages: Mapping[str, bool], expected: float = 0.0) -> None:
        """Set the packages (whether each exists, by file name) and the expected seconds, 0 if unknown.

        Called again if the preparation changes the plan.
        """
        with self.lock:
            self.record.packages = {}
            for name, exists in packages.items():
                self.record.packages[name] = PackageState.THERE if exists else PackageState.WAITING
            self.record.status = RunStatus.CHECKING
            self._expected = expected
            self._began = monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the build began, without its preparation."""
        return monotonic() - self._began

    def task(self, name: str, *, level: int = logging.DEBUG) -> Task:
        """Return a row of the status; its phases are logged at ``level``."""
        return Task(self, name, level)

    def end_activity(self, activity: Activity) -> None:
        """Remove an activity, and keep its phase in the history; none is left after the end of the run."""
        activities = self.record.activities
        left = [row for row in activities if row is not activity]
        if len(left) < len(activities):
            self._history.add_phase(activity.task, activity.what, activity.since)
        self.record.activities = left

    def set_packages(self, file_names: Iterable[str], state: PackageState) -> None:
        """Set the state of packages; a final state only changes to published."""
        with self.lock:
            packages = self.record.packages
            for name in file_names:
                is_final = packages.get(name, PackageState.THERE) in _FINAL
                if state is PackageState.PUBLISHED or not is_final:
                    packages[name] = state

    def note_tests_left(self, *, only: bool) -> None:
        """Note whether only tests of packages are left."""
        with self.lock:
            if self.record.only_tests_left == only:
                return
            self.record.only_tests_left = only
        self.publish(at_once=True)

    def note(self, what: str | Preparing) -> None:
        """Log a sentence of a preparation, or update the row that shows its progress."""
        if not isinstance(what, Preparing):
            if what.startswith(WARNING):
                logger.warning(what.removeprefix(WARNING))
            else:
                logger.debug(what)
        elif what.has_ended:
            self._end_step(what)
        else:
            self._show_step(what)

    def _show_step(self, step: Preparing) -> None:
        with self.lock:
            if self.record.ended:
                return
            self.record.status = RunStatus.PREPARING
            task = self._preparing.get(step.what)
            is_new = task is None
            if task is None:
                task = self.task(step.what, level=PHASE)
                task.begin(step.what, total=step.total, unit=step.unit)
                self._preparing[step.what] = task
        if is_new:
            _log_phase(PHASE, step.what)
        task.advance(step.done, step.total)
        self.publish(at_once=is_new)

    def _end_step(self, step: Preparing) -> None:
        """Remove a step's row; several threads may report the end of one step."""
        with self.lock:
            task = self._preparing.pop(step.what, None)
        if task is None:
            return
        task.idle()
        if not step.has_failed:
            logger.debug("%s: done", step.what)
        self.publish()

    def publish(self, *, at_once: bool = False) -> None:
        """Write the record, at most once a second unless ``at_once``."""
        with self.lock:
            if self.record.ended or (not at_once and monotonic() < self._next):
                return
            self._next = monotonic() + _SECONDS
            self._is_published = True
            now = self.record
            now.updated = time.time()
            self._measure()
            left = self._expected - self.seconds
            now.seconds_left = left if left > 0 else None
            self._write()
            if not self.keeps_file:
                self._history.tick(now.memory)
        self.watch()

    def _measure(self) -> None:
        """Measure memory and disk, at most once a second: each process of the run must be found."""
        if monotonic() < self._next_measure:
            return
        self._next_measure = monotonic() + _SECONDS
        self.record.memory = tree_memory(os.getpid())
        self.record.disk_free = disk_free(self._folder)

    def beat(self) -> None:
        """Publish the record while the run waits for something; only after the run itself has begun to."""
        if self._is_published:
            self.publish()

    def end(self, status: RunStatus, error: str, exit_code: int, seconds: float) -> None:
        """Write the final record; ``seconds``: the run's duration."""
        with self.lock:
            now = self.record
            now.status = status
            now.error = error
            now.exit_code = exit_code
            for activity in now.activities:
                self.end_activity(activity)
            now.seconds_left = None
            now.updated = now.began + seconds
            self._write()
            if not self.keeps_file:
                self._history.write()

    def _write(self) -> None:
        if not self.keeps_file:
            state_file.write(self._folder, self.record)
