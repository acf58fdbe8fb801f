"""From the events of a run to where it stands."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil

from groundwork import events
from groundwork.resources.machine import disk_free, measure
from groundwork.run_state import Going, RunState, TimeLeft
from megabuild.plan.plan import Plan

_BOOT = Path("/proc/sys/kernel/random/boot_id")
#: The task that PyTorch's own build is; its events come without a name.
PYTORCH = "pytorch"


class Following:
    """Takes the events of a run, and says where it stands."""

    def __init__(
        self, plan: Plan, left: Callable[[], TimeLeft | None], clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._left = left
        self._folder = plan.options.state
        self._going: dict[str, Going] = {}
        self._own = [item.package.id.label for item in plan.items]
        self._packages = {
            item.package.id.label: "there" if item.exists else "waiting" for item in plan.all_items
        }
        self._state = RunState(
            config=plan.options.run_name,
            status="checking",
            began=clock(),
            updated=clock(),
            jobs=plan.jobs.count,
            cores=measure().cores,
            pid=os.getpid(),
            process_began=psutil.Process().create_time(),
            host=socket.gethostname(),
            boot=_BOOT.read_text().strip() if _BOOT.exists() else "",
        )

    def take(self, event: events.Event) -> None:
        """Take one event."""
        task = PYTORCH
        if isinstance(event, events.InTask):
            task, event = event.task, event.event
        match event:
            case events.RunStarted():
                self._state = replace(self._state, log=str(event.log))
            case events.PhaseStarted():
                self._begin(task, event.step)
            case events.Progress():
                if task not in self._going:
                    self._begin(task, event.step)
                self._going[task] = replace(self._going[task], done=event.done, total=event.total)
            case events.TaskStarted():
                self._begin(event.task, f"{event.task}: environment")
            case events.TaskEnded():
                self._going.pop(event.task, None)
            case events.PackageBuilt():
                self._packages[event.package.label] = "built"
                if task == PYTORCH:
                    self._between()
            case events.Preparing():
                self._prepare(event)
            case events.PackageStarted():
                self._begin(task, f"{event.package.label}: build script")
            case events.TestRun() if task != PYTORCH:  # it has no end of its own: the task goes on, or ends
                self._begin(task, f"testing {task}")
            case events.TestRun():
                self._begin(f"test {event.name}", f"testing {event.name}")
            case events.TestEnded():
                self._going.pop(f"test {event.name}", None)
                if event.passed:
                    self._packages[event.name] = "published"
            case _:
                pass

    def _between(self) -> None:
        """Note that one of PyTorch's packages is built: the next one's environment is made, if there is one."""
        if any(self._packages.get(label) == "waiting" for label in self._own):
            self._begin(PYTORCH, "environment of the next package")
        else:
            self._going.pop(PYTORCH, None)

    def planned(self, plan: Plan) -> None:
        """Take the plan that the preparation has led to."""
        self._going.clear()
        self._packages = {
            item.package.id.label: "there" if item.exists else "waiting" for item in plan.all_items
        }
        self._own = [item.package.id.label for item in plan.items]
        self._state = replace(self._state, status="checking", jobs=plan.jobs.count)

    def _prepare(self, event: events.Preparing) -> None:
        self._state = replace(self._state, status="preparing")
        if event.over:
            self._going.pop(event.what, None)
            return
        going = self._going.get(event.what) or Going(task=event.what, what=event.what, since=self._clock())
        self._going[event.what] = replace(going, done=event.done, total=event.total, unit=event.unit)

    def _begin(self, task: str, what: str) -> None:
        self._state = replace(self._state, status="building")
        self._going[task] = Going(task=task, what=what, since=self._clock())

    def state(self) -> RunState:
        """Return where it stands now."""
        return replace(
            self._state,
            updated=self._clock(),
            going=tuple(self._going.values()),
            packages=dict(self._packages),
            left=self._left(),
            disk_free=disk_free(self._folder),
        )

    def ended(self, status: str, *, error: str = "", exit_code: int = 0) -> RunState:
        """Return the last state."""
        self._state = replace(self._state, status=status, error=error, exit_code=exit_code)
        self._going.clear()
        return replace(self.state(), left=None)
