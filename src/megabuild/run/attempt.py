"""One attempt at a task: runs the worker, follows its logs, and explains its failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from msgspec import structs

from groundwork.errors import MegabuildError
from groundwork.job_pool import PoolBudget
from groundwork.jobs import Budget
from groundwork.machine import MemoryWatch
from megabuild.engine.job import Job, Outcome, OutcomeKind
from megabuild.engine.logs import ENGINE, LogFollower, Script, ScriptKind, ScriptLine
from megabuild.engine.supervisor import Place, run_worker
from megabuild.isolation.base import Isolation
from megabuild.plan.plan import Plan
from megabuild.run.build_output import STAGING, BuildStep, Culprit, LogTail, Parser, StepKind
from megabuild.run.estimate import Estimate
from megabuild.run.failure import Failure, first_error_below
from megabuild.run.failure_shell import FailureShell, remove_programs, write_failure_shell
from megabuild.run.graph import Stopped
from megabuild.run.logfile import LogFile
from megabuild.run.progress import Progress
from megabuild.run.summary import on_machine
from megabuild.status.status import PHASE, Status, script_lines

#: Seconds between two polls of logs while ninja compiles: polling is most of the driver's own CPU time.
_COMPILING_SECONDS = 0.25
#: Name of the folder of packages that failed their tests.
BROKEN = "broken"


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Objects that all tasks of a run share."""

    progress: Progress  #: at the start of the tasks; the state of its plan is locked
    estimate: Estimate
    isolation: Isolation
    status: Status
    log: LogFile  #: the run's own

    @property
    def plan(self) -> Plan:
        return self.progress.plan

    def budget(self, *, tasks: int = 1, heavy_jobs: int = 0) -> Budget:
        """Return the compile jobs of up to so many tasks at a time, from the pool of several configs if there is one.

        The tasks of one such budget must have ended before those of another one start.
        """
        pool = self.plan.options.pool
        if pool is None or pool.is_fixed:
            return Budget(self.estimate.jobs.count, tasks=tasks, heavy_jobs=heavy_jobs)
        return PoolBudget(pool, tasks=tasks, heavy_jobs=heavy_jobs)


class Attempt(AbstractContextManager["Attempt"]):
    """One attempt at a task, with a row in the status; it ends early, by :class:`Stopped`, once ``stop`` is set.

    ``state`` is the folder from which a later attempt resumes. Lines go to ``log``, by default the run's; phases are
    logged at ``level``.
    """

    def __init__(
        self, run: RunContext, name: str, state: Path, *, jobs: int, stop: threading.Event,
        log: LogFile | None = None, level: int = PHASE,
    ) -> None:  # fmt: skip
        self.run = run
        self.name = name
        self.state = state
        self.jobs = jobs
        self.log = log or run.log
        self.row = run.status.task(name, level=level)
        self.parser = Parser()
        self.phase = ""  #: the phase that the build script announced last
        self._stop = stop
        self._memory = MemoryWatch()
        self._tail = LogTail(run.plan.staged_name)
        self._compiling = False

    def __exit__(self, *_: object) -> None:
        """End the row's phase."""
        self.row.idle()

    def halt(self) -> None:
        """Raise :class:`Stopped` if the task is to end."""
        if self._stop.is_set():
            raise Stopped(self.name)

    def follow(
        self, sandbox: Place, job: Job, on_steps: Callable[[Iterable[BuildStep]], object] = list
    ) -> Outcome:
        """Run the worker to its end; log everything that it and its scripts print.

        ``on_steps`` takes the scripts' new steps several times a second, mostly none; by default, steps are ignored.
        """
        remove_programs(self.state)
        due = 0.0

        def tick(*, last: bool = False) -> None:
            nonlocal due
            if last or time.monotonic() >= due:
                on_steps(self._steps(follower.poll(last=last)))
                self._memory.tick()
                # outside ninja, poll all the time: a short script's log may disappear within a moment
                pause = _COMPILING_SECONDS if self._compiling else 0.0
                due = time.monotonic() + pause
            if not last:
                self.halt()

        with LogFollower(self.state) as follower:
            outcome = run_worker(sandbox, job, on_line=partial(self._log, "engine", ENGINE), on_tick=tick)
            tick(last=True)
        # it quotes what programs printed, and errors with it are kept in run.json
        return structs.replace(outcome, message=self.log.hide(outcome.message))

    def _steps(self, lines: Iterable[ScriptLine]) -> Iterator[BuildStep]:
        """Log the scripts' lines, and yield the steps that they announce."""
        for line in lines:
            name = line.package.name
            source = f"{name} {line.python}".rstrip() if name else STAGING
            if line.kind is ScriptKind.TEST:
                source = f"test:{source}"
            self._log(source, line.script, line.text)
            for step in self.parser.feed(line):
                self._compiling = step.kind is StepKind.COUNT and step.done < step.total
                yield step

    def _log(self, source: str, script: Script, text: str) -> None:
        masked = self.log.write(source, text)
        self._tail.add(script, masked)
        script_lines.info("%s: %s", source, masked)

    def explain(
        self, outcome: Outcome, sandbox: Place, *, aside: Path, broken: Collection[str], what: str = "",
        install: str = "",
    ) -> MegabuildError:  # fmt: skip
        """Return a failed worker's error; the package files ``broken``, now in ``aside``, failed their tests.

        ``install``: the command that installs one of them into an environment.
        """
        culprit = self._tail.culprit(outcome, broken)
        shell = FailureShell()
        if outcome.kind is OutcomeKind.BUILD:
            first = first_error_below(culprit.lines, sandbox.state_inside, self.state)
            shell = write_failure_shell(sandbox, culprit, first)
        failure = Failure(
            outcome=outcome, lines=culprit.lines, what=what or culprit.what, phase=self.phase, jobs=self.jobs,
            log=self.log.path, state=self.state, short=self._memory.short(), aside=aside,
            disks=[mount.source for mount in sandbox.mounts if mount.writable],
            inside=sandbox.state_inside, package=culprit.package, enter=shell.enter, again=shell.again,
            install=install, on_machine=on_machine(self.run.plan.options.config.platform),
        )  # fmt: skip
        error = failure.error()
        error.packages = frozenset(broken) or self._packages_of(culprit)
        return error

    def _packages_of(self, culprit: Culprit) -> frozenset[str]:
        """Return the file name of the package whose script failed; none for the staging."""
        for item in self.run.plan.all_items:
            package = item.package
            if (package.name, package.build_string) == (culprit.package, culprit.build_string):
                return frozenset({package.file_name})
        return frozenset()
