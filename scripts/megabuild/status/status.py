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
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from time import monotonic

import psutil

from groundwork.machine import disk_free, measure, tree_memory
from groundwork.progress import WARNING, Preparing
from megabuild.status import record as state_file
from megabuild.status.record import Activity, RunRecord

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
_FINAL = frozenset({"there", "published", "failed"})
#: Share of the last run's length after which its speed is replaced by that of this run.
_MEMORY = 0.15


class TimeLeft:
    """Estimates a run's time left from the last run: the seconds when that reached each point, and its length."""

    def __init__(self, before: Mapping[str, float], length: float) -> None:
        self._before, self._length, self._began = before, length, monotonic()
        self._seen: Counter[str] = Counter()
        self._then = self._now = 0.0  # seconds at the last point that both runs have reached
        self._factor = 1.0  # this run's duration relative to the last run's
        self.passed: dict[str, float] = {}  #: the seconds at which this run reached each point

    @property
    def seconds(self) -> float:
        """Seconds since the build began, without its preparation."""
        return monotonic() - self._began

    def reach(self, point: str) -> None:
        """Record that the run has reached a point; a repeated name is a new point."""
        self._seen[point] += 1
        name, now = f"{point} #{self._seen[point]}", self.seconds
        self.passed[name] = now
        then = self._before.get(name, 0.0)
        if then > self._then:
            share = min(1.0, (then - self._then) / (_MEMORY * self._length))
            self._factor += share * ((now - self._now) / (then - self._then) - self._factor)
            self._then, self._now = then, now

    def left(self) -> tuple[float, float] | None:
        """Return the seconds left and the share done; None if no run of this config has succeeded here."""
        if not self._length:
            return None
        since = self.seconds - self._now
        return max(1.0, (self._length - self._then) * self._factor - since), self._then / self._length


class Task(AbstractContextManager["Task"]):
    """A row of the status, from its first phase to the end of the context."""

    def __init__(self, status: Status, name: str, level: int) -> None:
        self._status, self.name, self.level = status, name, level
        self._activity: Activity | None = None

    def __exit__(self, *_: object) -> None:
        self.idle()

    def phase(self, what: str, *, point: str = "", total: int = 0, unit: str = "", level: int = 0) -> None:
        """Begin a phase and end the one before; ``point`` names it for the time left."""
        self.idle()
        with self._status.lock:
            record = self._status.record
            record.status = "building" if record.status == "checking" else record.status
            self._activity = Activity(task=self.name, what=what, since=time.time(), total=total, unit=unit)
            record.activities.append(self._activity)
            if point:
                self._status.time_left.reach(point)
        logger.log(level or self.level, what, extra={"begins_phase": True})
        self._status.publish(at_once=True)

    def advance(self, done: int, total: int) -> None:
        """Set the phase's progress; every fortieth of ninja's steps is a point, named by the steps left."""
        with self._status.lock:
            activity = self._activity
            if activity is None or (activity.done, activity.total) == (done, total):
                return
            activity.done, activity.total = done, total
            if activity.unit:
                return
            if (total - done) % max(1, total // 40) == 0:
                self._status.time_left.reach(f"{self.name} {activity.what} {total - done} left")
        if done == total:
            logger.log(self.level, "%s %d/%d", activity.what, done, total)

    def idle(self) -> None:
        """End the phase."""
        with self._status.lock:
            if self._activity is not None:
                self._status.record.activities.remove(self._activity)
                self._activity = None


class Status:
    def __init__(self, config: str, folder: Path) -> None:
        self.lock = threading.RLock()
        self.time_left = TimeLeft({}, 0.0)
        self.watch: Callable[[], None] = lambda: None  #: called whenever the record is published
        self.keeps_file = False  #: a run with nothing to do leaves the record of the last run in its file
        self._folder, self._next = folder, 0.0
        self._preparing: dict[str, Task] = {}
        self.record = RunRecord(
            config=config,
            began=time.time(),
            pid=os.getpid(),
            process_began=psutil.Process().create_time(),
            host=socket.gethostname(),
            memory_most=measure().memory,
        )

    def plan(self, packages: Mapping[str, bool], time_left: TimeLeft) -> None:
        """Set the packages: whether each exists, by label. Called again if the preparation changes the plan."""
        with self.lock:
            self.record.packages = {
                name: "there" if exists else "waiting" for name, exists in packages.items()
            }
            self.record.status, self.time_left = "checking", time_left

    def task(self, name: str, *, level: int = logging.DEBUG) -> Task:
        """Return a row of the status; its phases are logged at ``level``."""
        return Task(self, name, level)

    def set_packages(self, labels: Iterable[str], state: str) -> None:
        """Set the state of packages; a final state only changes to ``published``."""
        with self.lock:
            for label in labels:
                if state == "published" or self.record.packages.get(label, "there") not in _FINAL:
                    self.record.packages[label] = state

    def note(self, what: str | Preparing) -> None:
        """Log a sentence of a preparation, or update the row that shows its progress."""
        if not isinstance(what, Preparing):
            level = logging.WARNING if what.startswith(WARNING) else logging.DEBUG
            logger.log(level, what.removeprefix(WARNING))
            return
        with self.lock:
            self.record.status = "preparing"
            is_new = what.what not in self._preparing
            task = self._preparing.setdefault(what.what, self.task(what.what, level=PHASE))
        if is_new:
            task.phase(what.what, total=what.total, unit=what.unit)
        if 0 < what.total <= what.done:
            self._preparing.pop(what.what).idle()
            logger.debug("%s: done", what.what)
        else:
            task.advance(what.done, what.total)
        self.publish()

    def publish(self, *, at_once: bool = False) -> None:
        """Write the record, at most once a second unless ``at_once``."""
        with self.lock:
            if not at_once and monotonic() < self._next:
                return
            self._next = monotonic() + _SECONDS
            now, left = self.record, self.time_left.left()
            now.updated, now.memory, now.disk_free = (
                time.time(),
                tree_memory(os.getpid()),
                disk_free(self._folder),
            )
            now.seconds_left, now.share = left or (None, 0.0)
            self._write()
        self.watch()

    def end(self, status: str, error: str, exit_code: int, seconds: float) -> None:
        """Write the final record; ``seconds``: the run's duration."""
        with self.lock:
            now = self.record
            now.status, now.error, now.exit_code = status, error, exit_code
            now.activities, now.seconds_left = [], None
            now.updated = now.began + seconds
            self._write()

    def _write(self) -> None:
        if not self.keeps_file:
            state_file.write(self._folder, self.record)
