"""The extensions' part of a run: schedule the tasks, look into what they make, publish it."""

from __future__ import annotations

import os
import queue
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from megabuild.engine import archive
from megabuild.isolation.base import Isolation
from megabuild.resources.jobs import compile_jobs
from megabuild.resources.machine import measure
from megabuild.run import events, publish
from megabuild.run.logfile import LogFile
from megabuild.run.options import Plan
from megabuild.run.pyg import governor, place
from megabuild.run.pyg.building import Building
from megabuild.run.pyg.compilers import Compilers
from megabuild.run.pyg.schedule import Failed, Inbox, Schedule, Steps
from megabuild.run.pyg.tasks import Task

#: Looks into a package of a task; raises an IntegrityError for one that is not what it should be.
Check = Callable[[Path, Task], None]


class ExtensionsBuild:
    """The extensions' part of one run.

    Parameters
    ----------
    plan:
        What to build; its state is locked and PyTorch's packages are published.
    isolation:
        Where, checked.
    check:
        Looks into packages before they are published.
    tell:
        Takes events.
    log:
        The run's log; every task has one of its own besides.
    """

    def __init__(
        self,
        plan: Plan,
        isolation: Isolation,
        *,
        check: Check,
        tell: Callable[[events.Event], None],
        log: LogFile,
    ) -> None:
        self._plan = plan
        self._options = plan.options
        self._isolation = isolation
        self._check = check
        self._tell = tell
        self._log = log
        self.failed: dict[str, Failed] = {
            task.name: Failed(message=task.reason)
            for task in plan.extensions.missing
            if task.how == "nothing"
        }

    def run(self) -> None:
        """Do it; a task that fails is noted in ``failed`` and does not stop the others."""
        tasks = [task for task in self._plan.extensions.missing if task.name not in self.failed]
        lacking = self._lacking()
        if lacking:
            why = Failed(
                message=f"needs {', '.join(lacking)}, which {'is' if len(lacking) == 1 else 'are'} not published"
            )
            self.failed.update({task.name: why for task in tasks})
        if lacking or not tasks:
            return
        place.torch_channel(self._plan)
        inbox: Inbox = queue.SimpleQueue()
        stop = threading.Event()
        schedule = Schedule(
            [self._steps(task, inbox, stop) for task in tasks],
            done=self._done(),
            failed=self.failed,
            fifo=lambda task: place.state(self._options, task) / place.FIFO,
            governor=self._governor(),
            tell=self._tell,
            finished=self._finished,
            inbox=inbox,
            stop=stop,
            shares_objects=shutil.which(os.environ.get("TORCH_CCACHE", "") or "ccache") is not None,
        )
        schedule.run()

    def _lacking(self) -> list[str]:
        """PyTorch's packages that are not there: untested ones are not published."""
        known = publish.records(self._options.packages)
        names = (item.package.file_name for item in self._plan.items)
        return [name for name in names if name not in known]

    def _steps(self, task: Task, inbox: Inbox, stop: threading.Event) -> Building:
        def tell(event: events.Event) -> None:
            inbox.put(events.InTask(task=task.name, event=event))

        return Building(self._plan, task, self._isolation, check=self._check, tell=tell, stop=stop)

    def _governor(self) -> governor.Governor:
        cuda = self._options.config.cuda_version is not None
        jobs = compile_jobs(measure(), bytes_per_job=1, requested=self._options.cpu_count, environ=os.environ)
        made = governor.Governor(
            ceiling=jobs.count,
            per_job=governor.BYTES_PER_NVCC if cuda else governor.BYTES_PER_GXX,
            free=lambda: measure().memory_free,
            look=Compilers().look,
            budget=self._options.memory,
        )
        reason = jobs.reason if made.limit.count == jobs.count else made.limit.reason
        self._tell(events.JobsChanged(count=made.limit.count, reason=reason))
        return made

    def _done(self) -> dict[str, Sequence[Path]]:
        known, channel = publish.records(self._options.packages), self._options.packages
        return {
            task.name: [channel / known[package.file_name].path for package in task.packages]
            for task in self._plan.extensions.tasks
            if task.exists
        }

    def _finished(self, steps: Steps, archives: Sequence[archive.Archive]) -> list[Path]:
        """Publish what passed; without tests nothing is, and nothing that needs it is tested either."""
        task, channel = steps.task, self._options.packages
        known = publish.records(channel)
        others = [
            archive.read(channel / known[package.file_name].path)
            for other in self._plan.extensions.tasks
            for package in other.packages
            if other.name != task.name and package.file_name in known
        ]
        publish.check_owners([*archives, *others])
        if self._options.skip_tests:
            self._tell(events.Warned(message=f"{task.name} is not published without its test"))
            return [made.path for made in archives]
        names = [made.path.name for made in archives]
        records = publish.publish(
            channel,
            archives,
            platform=self._options.config.platform,
            fingerprints=dict.fromkeys(names, task.fingerprint),
            seconds=dict.fromkeys(names, steps.seconds),
        )
        for name in names:
            self._log.write("driver", f"published {name} ({records[name].size} bytes)")
        return [channel / records[name].path for name in names]
