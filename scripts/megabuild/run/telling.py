"""Whom a run tells what happens: its log, whoever watches, and the file that others read."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from groundwork import events
from groundwork.errors import IntegrityError
from groundwork.run_state import RunState
from megabuild.plan.plan import Plan
from megabuild.run.logfile import LogFile
from megabuild.run.time_left import Pace
from megabuild.state import state_file
from megabuild.state.following import Following

#: What goes neither into the log nor at once to those who look: it comes many times a second.
_OFTEN = (events.LogLine, events.Progress, events.Measured, events.Idle, events.Published)


class Telling:
    """Takes all events of a run, from any thread, and hands them on one after the other.

    ``idle``: there is nothing to do, so that the file stays as the last run has left it, if that came to its end.
    """

    def __init__(self, plan: Plan, log: LogFile, reporter: events.Reporter, *, idle: bool) -> None:
        self._log = log
        self._reporter = reporter
        self._lock = threading.RLock()  # events come from the preparation's threads, too
        self.pace = _pace(plan)
        self._following = Following(plan, left=lambda: self.pace.left())
        self._file = state_file.StateFile(plan.options.state)
        self._silent = idle and _came_to_its_end(plan.options.state)

    def planned(self, plan: Plan) -> None:
        """Take another plan: the preparation has led to it."""
        self.pace = _pace(plan)
        self._following.planned(plan)

    def tell(self, event: events.Event) -> None:
        """Hand an event on."""
        often = isinstance(event.event if isinstance(event, events.InTask) else event, _OFTEN)
        if not often and not isinstance(event, events.InTask) and (line := event.logged()):
            self._log.write("driver", line)
        with self._lock:
            self.pace.take(event)
            self._following.take(event)
            self._reporter(event)
        if not often:
            self.stand(at_once=True)

    def stand(self, *, at_once: bool = False) -> None:
        """Say where the run stands: to whoever watches, and in the file that others read."""
        with self._lock:
            if at_once or self._file.due:
                state = self._following.state()
                if not self._silent:
                    self._file.write(state)
                self._reporter(events.Stands(state=state))

    def state(self) -> RunState:
        """Return where it stands."""
        with self._lock:
            return self._following.state()

    def ended(self, status: str, error: str, exit_code: int, seconds: float) -> None:
        """Say how it ended, and after how many seconds."""
        if not self._silent:
            ended = self._following.ended(status, error=error, exit_code=exit_code)
            self._file.write(replace(ended, updated=ended.began + seconds))


def _pace(plan: Plan) -> Pace:
    return Pace(plan.last_run.passed, plan.last_run.seconds)


def _came_to_its_end(state: Path) -> bool:
    """Return whether no run before this one is told of as one that was killed."""
    try:
        last = state_file.read(state)
    except (OSError, IntegrityError):
        return False
    return last is None or last.ended
