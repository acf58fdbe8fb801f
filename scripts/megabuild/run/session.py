"""One run of a config from lock to summary."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from filelock import FileLock, Timeout

from megabuild import stopping
from megabuild.configs.render import PlannedPackage
from megabuild.engine import cache, strays
from megabuild.errors import BusyError, Interrupted, MegabuildError, OutOfMemoryError, SwapRefused
from megabuild.isolation.base import Isolation
from megabuild.isolation.choose import choose
from megabuild.network.redact import Mask
from megabuild.providers import alternatives
from megabuild.resources.estimate import GB
from megabuild.resources.jobs import Jobs
from megabuild.resources.machine import measure
from megabuild.run import events, publish, stamp
from megabuild.run.build import Build
from megabuild.run.logfile import LogFile
from megabuild.run.options import Options, Plan, PlanItem
from megabuild.run.planning import jobs_for, make_plan
from megabuild.run.preflight import checks, writable
from megabuild.run.pyg import extending
from megabuild.run.pyg.planning import published
from megabuild.run.pyg.run import ExtensionsBuild
from megabuild.run.pyg.tasks import Task
from megabuild.run.summary import PackageResult, Summary

__all__ = ["Options", "Plan", "PlanItem", "Summary", "execute", "plan"]


def plan(
    options: Options, report: Callable[[str], None], ask: Callable[[str], bool] = lambda question: False
) -> Plan:
    """Find out what a run would do; see :func:`megabuild.run.planning.make_plan`."""
    return make_plan(options, report, ask)


def execute(plan: Plan, reporter: events.Reporter) -> Summary:
    """Run a plan to its end.

    Parameters
    ----------
    plan:
        From :func:`plan`.
    reporter:
        Told what happens, in this thread.

    Returns
    -------
    Summary
        Also written to ``run.json`` in the state folder, whatever happened.

    Raises
    ------
    MegabuildError
        What stopped the run; everything finished is kept.
    """
    options = plan.options
    writable(options.state, "choose another folder with --output")
    with (
        _locked(options),
        stopping.by_signals(),
        LogFile(options.state / "logs", options.run_name, Mask(os.environ)) as log,
    ):
        run = _Run(plan, log, reporter)
        error = "interrupted"
        try:
            run.go()
            error = ""
        except MegabuildError as failed:
            error = log.mask(failed.message)
            raise
        except KeyboardInterrupt as stop:
            raise Interrupted(
                f"interrupted by {str(stop) or 'Ctrl-C'}",
                "finished packages and objects are kept: run again to continue",
            ) from None
        except Exception as failed:
            error = log.mask(f"{type(failed).__name__}: {failed}")
            raise
        finally:
            summary = run.summary(error)
            if error:
                log.write("driver", f"error: {error}")
            summary.write(options.state / "run.json")
    return summary


@contextlib.contextmanager
def _locked(options: Options) -> Iterator[None]:
    """Hold the config's lock; the process that has it is named in a file beside it."""
    holder = options.state / "lock.pid"
    lock = FileLock(options.state / "lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        owner = holder.read_text() if holder.exists() else "unknown"
        raise BusyError(
            f"{options.run_name} is being built already (process {owner}, {options.state})",
            "wait for it, or give another --output",
        ) from None
    with lock:
        lock.release()  # counted: the context holds it once more
        holder.write_text(str(os.getpid()))
        yield


class _Run:
    """What :func:`execute` does, with what it has found out so far."""

    def __init__(self, plan: Plan, log: LogFile, reporter: events.Reporter) -> None:
        self._damage = publish.heal(plan.options.packages, plan.options.config.platform)
        self._plan = _fresh(plan)
        self._log = log
        self._reporter = reporter
        self._began = time.monotonic()
        self._build: Build | None = None
        self._extensions: ExtensionsBuild | None = None

    def go(self) -> None:
        """Check, heal, build, publish."""
        plan, options = self._plan, self._plan.options
        if not plan.missing and not plan.extensions.missing:
            self._tell(events.RunStarted(config=options.run_name, log=self._log.path, isolation="none"))
            self._tell_damage()
            return
        environment = replace(plan.environment, overrides=dict(plan.overrides))
        isolation = choose(
            options.engine,
            config=options.config,
            environment=environment,
            alternatives=alternatives.without_channel(options.config),
        )
        self._tell(events.RunStarted(config=options.run_name, log=self._log.path, isolation=isolation.name))
        self._tell_damage()
        jobs = jobs_for(plan)
        for name, found in checks(plan, isolation, jobs):
            self._tell(events.Checked(check=name, detail=found))
        per_job, memory = plan.estimate.memory_per_job, measure().memory
        if jobs.count > 1 and jobs.count * per_job > memory:
            self._tell(
                events.Warned(
                    message=f"{jobs.count} compile jobs ({jobs.reason}) may take {jobs.count * per_job / GB:.0f} GB "
                    f"of memory, and there are {memory / GB:.0f}"
                )
            )
        ended = strays.end(options.state)
        if ended:
            self._tell(events.Healed(what=f"{ended} processes of an earlier run"))
        self._build_all(isolation, jobs)
        plan = self._plan
        if plan.extensions.missing:
            self._extensions = ExtensionsBuild(
                plan, isolation, check=extending.check(plan), tell=self._tell, log=self._log
            )
            self._extensions.run()

    def _build_all(self, isolation: Isolation, jobs: Jobs) -> None:
        """Build PyTorch's packages; what can be mended at little cost is tried once more."""
        swapped = False
        while self._plan.missing:
            self._build = Build(self._plan, isolation, jobs, tell=self._tell, log=self._log)
            try:
                self._build.run()
                return
            except OutOfMemoryError as error:
                if jobs.count == 1:
                    raise
                jobs = Jobs(count=jobs.count // 2, reason="memory ran out with more")
                why = f"once more with {jobs.count} compile {'job' if jobs.count == 1 else 'jobs'}"
                self._tell(events.Warned(message=f"{error.message.splitlines()[0]}: {why}"))
            except SwapRefused as error:
                # Something in the tree is damaged, and staging, which would have seen to it, was skipped.
                if swapped or self._plan.staging_decision.decision != "reuse":
                    raise
                swapped = True
                why = "staging runs once more, over the objects that are there"
                self._tell(events.Warned(message=f"{error.message.splitlines()[0]}: {why}"))
                cache.drop_stagings(self._plan.options.state / "out")
            self._plan = _fresh(self._plan)

    def _tell_damage(self) -> None:
        for what in self._damage:
            self._tell(events.Warned(message=what))

    def _tell(self, event: events.Event) -> None:
        if not isinstance(event, (events.LogLine, events.Progress, events.InTask)):
            self._log.write("driver", str(event))
        self._reporter(event)

    def summary(self, error: str) -> Summary:
        """Put together what is known."""
        options, build = self._plan.options, self._build
        known = publish.records(options.packages)
        rows = tuple(self._row(item, known) for item in self._plan.items)
        rows += tuple(
            self._extension_row(task, package, known)
            for task in self._plan.extensions.tasks
            for package in task.packages
        )
        result = Summary(
            ok=not error and all(row.status in ("built", "skipped") for row in rows),
            config=options.run_name,
            packages=rows,
            seconds=round(time.monotonic() - self._began, 1),
            log=self._log.path,
            channel=options.packages,
            staging=self._plan.staging_decision.decision,
            error=error,
        )
        return build.add_to(result) if build is not None else result

    def _row(self, item: PlanItem, known: dict[str, publish.Record]) -> PackageResult:
        package = item.package
        fingerprint = self._plan.package_fingerprints[package.file_name]
        failed = self._build is not None and self._build.failed(package)
        row = self._found(package, known, fingerprint, there=item.exists)
        return replace(row, status="failed") if row.status == "missing" and failed else row

    def _extension_row(
        self, task: Task, package: PlannedPackage, known: dict[str, publish.Record]
    ) -> PackageResult:
        row = self._found(package, known, task.fingerprint, there=task.exists)
        why = self._extensions.failed.get(task.name) if self._extensions is not None else None
        if row.status != "missing" or why is None:
            return row
        return replace(row, status="failed", note=why.message.splitlines()[0])

    def _found(
        self, package: PlannedPackage, known: dict[str, publish.Record], fingerprint: str, *, there: bool
    ) -> PackageResult:
        """Describe a package by what is published of it."""
        channel, record = self._plan.options.packages, known.get(package.file_name)
        row = PackageResult(
            name=package.name, version=package.version, build_string=package.build_string, status="missing"
        )
        if record is None or not publish.is_published(channel, record, fingerprint):
            return row
        return replace(
            row,
            status="skipped" if there else "built",
            size=record.size,
            sha256=record.sha256,
            seconds=0.0 if there else record.seconds,
            path=str(channel / record.path),
        )


def _fresh(plan: Plan) -> Plan:
    """Look again at what exists, now that nobody else can change it."""
    options = plan.options
    known = publish.records(options.packages)
    items = []
    for item in plan.items:
        name = item.package.file_name
        exists = publish.is_published(options.packages, known.get(name), plan.package_fingerprints[name])
        items.append(replace(item, exists=exists))
    decision = stamp.decide(options.state / "tree", options.state / "out", plan.staging)
    tasks = tuple(
        replace(task, exists=published(task, task.fingerprint, options.packages, known))
        for task in plan.extensions.tasks
    )
    extensions = replace(plan.extensions, tasks=tasks)
    return replace(plan, items=tuple(items), staging_decision=decision, extensions=extensions)
