"""From the events of a run to where it stands."""

from __future__ import annotations

import os
import socket
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from groundwork import events
from groundwork.package_id import PackageId
from groundwork.resources.machine import disk_free, measure
from groundwork.resources.processes import TreeMemory, began
from groundwork.run_state import Going, RunState, TimeLeft
from megabuild.plan.plan import Plan

_BOOT = Path("/proc/sys/kernel/random/boot_id")
#: The task that PyTorch's own build is; its events come without a name.
PYTORCH = "pytorch"
#: What cannot get worse for a package.
_FINAL = frozenset({"there", "published", "failed"})


class Following:
    """Takes the events of a run, and says where it stands."""

    def __init__(
        self, plan: Plan, left: Callable[[], TimeLeft | None], clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._left = left
        self._folder = plan.options.state
        self._memory = TreeMemory()
        self._going: dict[str, Going] = {}
        self._measured: dict[str, events.Measured] = {}
        machine = measure()
        self._state = RunState(
            config=plan.options.run_name,
            status="checking",
            began=clock(),
            updated=clock(),
            jobs=plan.jobs.count,
            cores=machine.cores,
            memory_most=machine.memory,
            pid=os.getpid(),
            process_began=began(os.getpid()),
            host=socket.gethostname(),
            boot=boot(),
        )
        self.planned(plan)

    def take(self, event: events.Event) -> None:
        """Take one event."""
        task = PYTORCH
        if isinstance(event, events.InTask):
            task, event = event.task, event.event
        match event:
            case events.RunStarted():
                self._state = replace(self._state, log=str(event.log))
            case events.JobsChanged():
                self._state = replace(self._state, jobs=event.count)
            case events.Preparing():
                self._prepare(event)
            case events.Idle():
                self._going.pop(event.task, None)
            case _:
                self._take_package(task, event)
                self._take_progress(task, event)

    def _take_progress(self, task: str, event: events.Event) -> None:
        match event:
            case events.PhaseStarted():
                self._begin(task, event.step)
            case events.Progress():
                if task not in self._going:
                    self._begin(task, event.step)
                self._going[task] = replace(self._going[task], done=event.done, total=event.total)
            case events.Measured():
                self._measured[task] = event
                if task in self._going:
                    self._going[task] = replace(self._going[task], objects=tuple(event.objects))
            case events.TaskStarted():
                self._begin(event.task, f"{event.task}: environment")
            case events.PackageStarted():
                self._begin(task, f"{event.package.label}: build script")
            case events.TestRun() if task == PYTORCH:
                self._begin(f"test {event.name}", f"testing {event.name}")
            case events.TestRun():
                self._begin(task, f"testing {task}")
            case events.TestEnded():
                self._going.pop(f"test {event.name}", None)
            case _:
                pass

    def _take_package(self, task: str, event: events.Event) -> None:
        match event:
            case events.PackageBuilt():
                self._built[task].append(event.package)
                self._note(event.package.label, "built")
                if task == PYTORCH:
                    self._between()
            case events.TestRun() if task == PYTORCH:
                self._note(event.name, "testing")
            case events.TestRun():  # in a task, tests are known by their packages' names
                for package in self._built[task]:
                    if package.name == event.name:
                        self._note(package.label, "testing")
            case events.TestEnded():
                self._note(event.name, "tested" if event.passed else "failed")
            case events.TaskEnded(status="failed"):
                for package in self._of_task.get(event.task, ()):
                    self._note(package.label, "failed")
            case events.Published():
                for package in event.packages:
                    self._packages[package.label] = "published"
            case _:
                pass

    def _note(self, label: str, status: str) -> None:
        if self._packages.get(label, "there") not in _FINAL:
            self._packages[label] = status

    def _between(self) -> None:
        """Note that one of PyTorch's packages is built: the next one's environment is made, if there is one."""
        if any(self._packages.get(label) == "waiting" for label in self._own):
            self._begin(PYTORCH, "environment of the next package")
        else:
            self._going.pop(PYTORCH, None)

    def planned(self, plan: Plan) -> None:
        """Take what is to be built: at first, and again where the preparation has led to another plan."""
        self._going.clear()
        self._packages = {
            item.package.id.label: "there" if item.exists else "waiting" for item in plan.all_items
        }
        self._own = [item.package.id.label for item in plan.items]
        self._of_task = {
            task.name: [package.id for package in task.packages] for task in plan.extensions.tasks
        }
        self._built: dict[str, list[PackageId]] = defaultdict(list)  # by task
        self._state = replace(self._state, status="checking", jobs=plan.jobs.count)

    def _prepare(self, event: events.Preparing) -> None:
        self._state = replace(self._state, status="preparing")
        if event.over:
            self._going.pop(event.what, None)
            return
        going = self._going.get(event.what) or Going(task=event.what, what=event.what, since=self._clock())
        self._going[event.what] = replace(going, done=event.done, total=event.total, unit=event.unit)

    def _begin(self, task: str, what: str) -> None:
        if self._state.status == "checking":
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
            memory=self._memory(),
            disk=sum(one.disk for one in self._measured.values()),
            disk_free=disk_free(self._folder),
            cache_hits=sum(one.hits for one in self._measured.values()),
            cache_misses=sum(one.misses for one in self._measured.values()),
        )

    def ended(self, status: str, *, error: str = "", exit_code: int = 0) -> RunState:
        """Return the last state."""
        self._state = replace(self._state, status=status, note="", error=error, exit_code=exit_code)
        self._going.clear()
        return replace(self.state(), left=None)


def boot() -> str:
    """Return what is another word after every start of this machine; nothing where nobody knows."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
