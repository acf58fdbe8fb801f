"""Carries a plan out: checks, builds, publishes, and puts the summary together."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from groundwork import files
from groundwork.errors import BuildError, DeadlineError, MegabuildError, OutOfSpaceError
from groundwork.jobs import Budget, Jobs, bytes_per_compile, compile_jobs
from groundwork.machine import is_full, measure
from groundwork.text import counted, display, duration
from megabuild.engine import archive
from megabuild.engine.supervisor import TESTS, end_strays
from megabuild.isolation.base import Isolation
from megabuild.plan import published, tree_reuse
from megabuild.plan.estimate import GB, keep_last_run
from megabuild.plan.plan import LastRun, Plan, Stored
from megabuild.plan.planning import compare_with_disk
from megabuild.plan.published import records
from megabuild.run import stored
from megabuild.run.extension import ExtensionWork, make_torch_channel, report_jobs
from megabuild.run.graph import Graph, Inbox, PackageAvailable
from megabuild.run.logfile import LogFile
from megabuild.run.memory_budget import MemoryBudget
from megabuild.run.outcome import package_results
from megabuild.run.package_test import PackageTest, name_of
from megabuild.run.preflight import Check, before_preparation, checks
from megabuild.run.preparation import Prepare, ticking
from megabuild.run.pytorch import NAME as PYTORCH
from megabuild.run.pytorch import PyTorchWork
from megabuild.run.summary import LATEST, Summary
from megabuild.run.work import RunContext, TaskResult, Work
from megabuild.status.show import progress_of
from megabuild.status.status import Status, TimeLeft, logger

#: Extensions that are built at the same time; tests of PyTorch's packages, beside the build of others.
_AT_ONCE, _TESTS_AT_ONCE = 3, 2


class Driver:
    """One run, whose state is locked."""

    def __init__(
        self, plan: Plan, log_file: LogFile, follow: Callable[[Status], None], prepare: Prepare | None = None
    ) -> None:
        self._prepare = prepare
        self._told: set[str] = set()
        self._damage = published.heal(plan.options.packages, plan.options.config.platform)
        self._plan = compare_with_disk(plan)
        self._estimated_seconds = plan.estimate.hours * 3600
        self._log = log_file
        self._began = time.monotonic()
        self._pytorch: PyTorchWork | None = None
        self._failed: dict[str, MegabuildError] = {}
        self._archives: dict[str, archive.Archive] = {}  # of published packages, by file name
        #: there is nothing to do: what is known of the last run that did something stays
        self.idle = self._is_done() and (plan.options.state / LATEST).exists()
        self.status = Status(plan.options.run_name, plan.options.state)
        self.status.record.log = str(log_file.path)
        self._planned()
        follow(self.status)
        if not self.idle:
            log_file.become_latest()

    def _planned(self) -> None:
        """Give the status what is to be built: at first, and where the preparation has changed it."""
        plan = self._plan
        packages = {item.package.id.label: item.exists for item in plan.all_items}
        last = plan.last_run
        # a run for other Pythons passes other points
        time_left = TimeLeft(last.passed, last.seconds) if plan.rounds == last.pythons else TimeLeft({}, 0.0)
        self.status.plan(packages, plan.jobs.count, time_left)

    def _is_done(self) -> bool:
        return not self._plan.missing and not self._plan.extensions.missing

    def go(self) -> None:
        """Check, build, publish."""
        self._announce()
        try:
            self._make()
        except (DeadlineError, OutOfSpaceError):
            raise
        except MegabuildError:  # what is finished is so all the same
            self._put()
            raise
        self._put()

    def _make(self) -> None:
        if self._is_done():
            return
        with ticking(self.status.publish):
            if self._prepare is not None and not self._plan.environment.ready:
                self._get_ready(self._prepare)
            if stored.fetch(self._plan, os.environ, self.status):
                self._plan = compare_with_disk(replace(self._plan, stored=Stored()))
                self._planned()
            if self._is_done():
                return
            isolation = self._checked()
        self._build(isolation)

    def _put(self) -> None:
        """Store what is finished, where that is asked for."""
        with ticking(self.status.publish):
            stored.put(compare_with_disk(self._plan), os.environ, self.status)

    def _get_ready(self, prepare: Prepare) -> None:
        """Have made what the environment lacks; from then on the plan is the one that goes with it."""
        before = self._plan
        if before.environment.root is None:  # else what is missing on this machine may yet be installed
            before.usable_isolation()
        self._check(before_preparation(before))
        self._plan = compare_with_disk(prepare(self.status.note))
        self._planned()

    def _checked(self) -> Isolation:
        """Return where it is built, once everything is checked that can be without a compiler."""
        plan, options = self._plan, self._plan.options
        isolation = plan.usable_isolation()
        self._check(checks(plan, isolation))
        jobs, per_job, memory = plan.jobs, plan.estimate.memory_of_ordinary, measure().memory
        if jobs.count > 1 and jobs.count * per_job > memory:
            logger.warning(
                "%d compile jobs (%s) may take %.0f GB of memory, and there are %.0f",
                *(jobs.count, jobs.reason, jobs.count * per_job / GB, memory / GB),
            )
        ended = end_strays(options.state)
        if ended:
            logger.info("removed %s of an earlier run, left when it was killed", counted(ended, "process"))
        return isolation

    def _check(self, checked: Iterable[Check]) -> None:
        """Tell what was checked; once, though it is looked at before the preparation and again after it."""
        for name, result in checked:
            if name not in self._told:
                self._told.add(name)
                logger.info("checked %s: %s", name, result)

    def _announce(self) -> None:
        config, isolation = self._plan.options.run_name, self._plan.isolation
        name = isolation.name if isinstance(isolation, Isolation) else "none"
        logger.debug("run of %s, isolation: %s", config, name)
        logger.info("log: %s", display(self._log.path))
        for what in self._damage:
            logger.warning("%s", what)

    def _build(self, isolation: Isolation) -> None:
        """Run the tasks that are to be done: PyTorch's, and one for every extension and Python."""
        plan = self._plan
        inbox: Inbox = queue.SimpleQueue()
        run = RunContext(
            plan=plan,
            isolation=isolation,
            status=self.status,
            there=lambda name: inbox.put(PackageAvailable(name=name)),
            stop=threading.Event(),
        )
        files.remove(plan.options.state / TESTS)
        works: list[Work] = []
        done = {task.name for task in plan.extensions.tasks if task.exists}
        there = [item.package.file_name for item in plan.items if item.exists]
        done.update(there, map(name_of, there))
        if plan.missing:
            self._pytorch = build = PyTorchWork(run, MemoryBudget(plan), self._log)
            testing = Budget(lambda: plan.jobs, tasks=_TESTS_AT_ONCE)
            left = (item for item in plan.items if not item.exists)
            works += [build, *(PackageTest(run, testing, build, item, self._log) for item in left)]
        else:
            done.add(PYTORCH)
            make_torch_channel(plan, plan.options.state / TESTS)
        budget = Budget(self._extension_jobs, tasks=_AT_ONCE, on_chosen=self._report_jobs)
        for task in plan.extensions.missing:
            if task.how == "nothing":
                self._failed[task.name] = BuildError(task.reason)
            else:
                works.append(ExtensionWork(run, budget, task))
        Graph(
            works,
            done=done,
            failed=self._failed,
            status=self.status,
            publish=self._publish,
            inbox=inbox,
            stop=run.stop,
            keep_going=plan.options.keep_going,
            on_tick=self._tick,
            refuse=self._too_late_for,
        ).run()
        files.remove(plan.options.state / TESTS)  # where a test failed, its package stays in there

    def _extension_jobs(self) -> Jobs:
        options = self._plan.options
        return compile_jobs(
            measure(),
            bytes_per_job=bytes_per_compile(cuda=options.config.cuda_version is not None),
            most=options.memory,
            requested=options.cpu_count,
            environ=os.environ,
        )

    def _report_jobs(self, jobs: Jobs) -> None:
        report_jobs(self.status, jobs.count, jobs.reason)

    def _publish(self, work: Work, made: TaskResult) -> None:
        """Put what a task has made into the channel, if no file of it belongs to another package as well."""
        channel, plan = self._plan.options.packages, self._plan
        names = [package.path.name for package in made.archives]
        if names:
            known = records(channel)
            wanted = {item.package.file_name: item.fingerprint for item in plan.all_items}
            others = [
                self._archives.get(name) or archive.read(channel / known[name].path)
                for name, fingerprint in wanted.items()
                if name in known and name not in names and known[name].fingerprint == fingerprint
            ]
            archive.check_owners([*made.archives, *others])
            # reading gigabytes once a run is enough: whether they still are what was published, publish() finds out
            self._archives |= {one.path.name: one for one in (*made.archives, *others)}
            now = published.publish(
                channel,
                made.archives,
                platform=plan.options.config.platform,
                fingerprints=wanted,
                seconds=made.seconds,
            )
            for name in names:
                self._log.write("driver", f"published {name} ({now[name].size} bytes)")
            labels = {item.package.file_name: item.package.id.label for item in plan.all_items}
            self.status.set_packages([labels[name] for name in names], "published")
        if isinstance(work, PyTorchWork) and made.error is None:
            tree_reuse.finished(plan.options.state / "tree")
            if plan.extensions.missing:
                make_torch_channel(plan, work.shelf)

    def _tick(self) -> None:
        """Say where it stands, and end the run where it is time to.

        Raises DeadlineError: It is.
        Raises OutOfSpaceError: The disk is full.
        """
        self.status.publish()
        if is_full(self._plan.options.state):
            raise OutOfSpaceError(
                f"{self._plan.options.state}: the disk is full",
                "free some space and run again: what is finished is kept",
            )
        deadline = self._plan.options.deadline
        if deadline is not None and deadline.left <= 0:
            raise deadline.error("has come " + progress_of(self.status.record))

    def _too_late_for(self, work: Work) -> DeadlineError | None:
        """Return the error for a task that cannot be done in the time left, as far as that is known."""
        deadline = self._plan.options.deadline
        seconds = work.cpu_seconds / max(1, min(work.budget.count or 1, self._plan.jobs.count))
        if deadline is None or seconds <= deadline.left:
            return None
        return deadline.error(f"is too near to begin {work.name}, which takes about {duration(seconds)}")

    def note_channels(self) -> None:
        """Note what the packages need besides; of a channel that is only planned there is nothing to be had."""
        if self._plan.environment.ready:
            published.note_channels(self._plan.options.packages, self._plan.environment.channels)

    def end(self, status: str, error: str, code: int, summary: Summary) -> None:
        """Write how the run has ended."""
        self.status.end(status, error, code, summary.seconds)

    def summary(self, error: str) -> Summary:
        """Put together what is known."""
        plan, options = self._plan, self._plan.options
        rows = package_results(plan, self._failed)
        result = Summary(
            ok=not error and all(row.status in ("built", "skipped") for row in rows),
            config=options.run_name,
            packages=rows,
            seconds=round(time.monotonic() - self._began, 1),
            log=self._log.path,
            channel=options.packages,
            staging=plan.staging_decision.decision,
            error=error,
            failures=tuple(why.failure for why in self._failed.values() if why.failure),
        )
        result = self._pytorch.add_to(result) if self._pytorch else result
        if not result.ok or not (plan.missing or plan.extensions.missing):
            return result
        if plan.compiles_staging:
            measured = self.status.time_left
            keep_last_run(
                options, LastRun(seconds=measured.seconds, passed=measured.passed, pythons=plan.rounds)
            )
        return replace(result, estimated_seconds=round(self._estimated_seconds, 1))
