"""Carries out a plan: checks, builds, publishes and summarises."""

from __future__ import annotations

import os
import queue
import time

from groundwork import files
from groundwork.errors import BuildError, DeadlineError, IsolationError, MegabuildError, OutOfSpaceError
from groundwork.jobs import Budget
from groundwork.machine import is_full
from groundwork.text import counted, display
from megabuild.engine import archive
from megabuild.engine.output_folder import drop_unpacked
from megabuild.engine.supervisor import TESTS, end_strays
from megabuild.isolation.base import Isolation
from megabuild.plan.estimate import keep_last_run
from megabuild.plan.plan import Method, Plan
from megabuild.plan.planning import compare_with_disk, make_plan
from megabuild.run import store_transfer
from megabuild.run.attempt import RunContext
from megabuild.run.build_output import Parser
from megabuild.run.extension import extension_work, make_torch_channel
from megabuild.run.graph import Graph, Inbox, TaskResult, Work
from megabuild.run.logfile import LogFile
from megabuild.run.package_test import package_test
from megabuild.run.preflight import check, check_disk
from megabuild.run.pytorch import NAME as PYTORCH
from megabuild.run.pytorch import PyTorchBuild
from megabuild.run.shelf import Shelf
from megabuild.run.summary import Summary, install_line, name_of_test, package_results
from megabuild.run.work_folders import separate_work
from megabuild.status.reading import read_run_state
from megabuild.status.record import PackageState, RunStatus
from megabuild.status.show import progress_of
from megabuild.status.status import Status, logger
from megabuild.store import published

#: Extensions built in parallel; package tests in parallel with the build of other packages.
_AT_ONCE, _TESTS_AT_ONCE = 3, 2


class Driver:
    """One run; the caller holds the lock of its state."""

    def __init__(self, plan: Plan, log: LogFile, status: Status) -> None:
        damage = published.repair(plan.options.packages, plan.options.config.platform)
        self._plan, self._log = compare_with_disk(plan), log
        self._began = time.monotonic()
        self._pytorch: PyTorchBuild | None = None
        self._inbox: Inbox = queue.SimpleQueue()
        self._shelf = Shelf(plan.options.state, self._inbox)
        self._failed: dict[str, MegabuildError] = {}
        self._archives: dict[str, archive.Archive] = {}  # of published packages, by file name
        self.status = status
        status.record.log = str(log.path)
        self._show_plan()
        if self._plan.is_done:
            last = read_run_state(plan.options.state).record
            status.keeps_file = last is not None and last.status is RunStatus.DONE
        else:
            log.become_latest()
            logger.info("log: %s", display(log.path))
        for problem in damage:
            logger.warning("%s", problem)

    def _show_plan(self) -> None:
        """Pass the planned packages to the status, at the start and after each change of the plan."""
        plan = self._plan
        packages = {
            item.package.file_name: item.package.file_name in plan.existing for item in plan.all_items
        }
        self.status.plan(packages, plan.last_run if plan.is_from_scratch else 0.0)

    def go(self) -> None:
        """Check, build and publish; then upload to the store."""
        try:
            if not self._plan.is_done:
                self._build()
        except (DeadlineError, OutOfSpaceError):  # no time, or no space, to upload
            raise
        except MegabuildError:  # upload finished packages all the same
            store_transfer.put(compare_with_disk(self._plan), os.environ, self.status)
            raise
        store_transfer.put(compare_with_disk(self._plan), os.environ, self.status)

    def _build(self) -> None:
        if self._plan.environment.pending:
            if self._plan.environment.root is None:  # else the preparation may install a missing program
                self._plan.usable_isolation()
            check_disk(self._plan)
            self._plan = make_plan(self._plan.options, self.status.note)
            self._show_plan()
        self._separate_work()
        self._plan = store_transfer.fetch(self._plan, os.environ, self.status)
        self._show_plan()
        if self._plan.is_done:
            return
        plan = self._plan
        isolation = plan.usable_isolation()
        check(plan, isolation)
        if ended := end_strays(plan.options.state):
            logger.info("ended %s left by a killed run", counted(ended, "process"))
        unpacked = plan.options.unpacked_folder(isolation) / "pkgs"
        names = [item.package.file_name for item in plan.all_items]
        drop_unpacked(unpacked, {name: name in plan.existing for name in names})
        self._run_tasks(isolation)

    def _separate_work(self) -> None:
        """Before a build on the host, remove what isolated builds of the config left."""
        plan = self._plan
        if plan.is_done or isinstance(plan.isolation, IsolationError):
            return
        if separate_work(plan.options.state, plan.isolation):
            logger.info("removed the work of isolated builds, whose programs would run on the host")

    def _run_tasks(self, isolation: Isolation) -> None:
        """Run the missing tasks: PyTorch's, its packages' tests, and one per extension and Python."""
        plan, status = self._plan, self.status
        run = RunContext(plan=plan, isolation=isolation, status=status, log=self._log)
        files.remove(plan.options.state / TESTS)
        works: list[Work] = []
        done = {task.name for task in plan.extensions if task not in plan.missing_tasks}
        done |= plan.existing | set(map(name_of_test, plan.existing))
        if plan.missing:
            self._pytorch = PyTorchBuild(run, self._shelf)
            budget = Budget(plan.jobs.count, tasks=_TESTS_AT_ONCE)
            tested = (item for item in plan.items if item.package.file_name not in plan.existing)
            works = [self._pytorch.work, *(package_test(run, budget, self._shelf, item) for item in tested)]
        else:
            done.add(PYTORCH)
            make_torch_channel(plan, plan.options.state / TESTS)

        budget = Budget(plan.jobs.count, tasks=_AT_ONCE)
        for task in plan.missing_tasks:
            if task.method is Method.NOTHING:
                error = BuildError(task.reason)
                error.packages = frozenset(task.file_names)
                self._failed[task.name] = error
            else:
                works.append(extension_work(run, budget, task))
        graph = Graph(
            works, done=done, failed=self._failed, status=status, publish=self._publish, inbox=self._inbox,
            keep_going=plan.options.keep_going, on_tick=self._tick,
        )  # fmt: skip
        try:
            graph.run()
        finally:
            self._shelf.drop_rejected()
        # not reached after a failed test: the failed package stays in this folder
        files.remove(plan.options.state / TESTS)

    def _publish(self, work: Work, result: TaskResult) -> None:
        """Publish a task's packages in the channel; raise if another package installs the same path."""
        channel, plan = self._plan.options.packages, self._plan
        if names := [package.path.name for package in result.archives]:
            before = published.records(channel)
            items = {item.package.file_name: item for item in plan.all_items}
            others = [
                self._archives.get(name) or archive.read(channel / before[name].path)
                for name, item in items.items()
                if name in before and name not in names and before[name].fingerprint == item.fingerprint
            ]
            archive.check_owners([*result.archives, *others])
            self._archives |= {other.path.name: other for other in (*result.archives, *others)}
            after = published.publish(
                channel,
                result.archives,
                platform=plan.options.config.platform,
                fingerprints={name: item.fingerprint for name, item in items.items()},
                seconds=result.seconds,
            )
            self.note_channels()  # published packages are used during the run, and after a kill
            for name in names:
                self._log.write("driver", f"published {name} ({after[name].size} bytes)")
            self.status.set_packages(names, PackageState.PUBLISHED)
        if work.name == PYTORCH and result.error is None and plan.missing_tasks:
            make_torch_channel(plan, self._shelf.folder)

    def _tick(self) -> None:
        """Publish the status; raise if the disk is full or the deadline is reached."""
        self.status.publish()
        if is_full(self._plan.options.state):
            raise OutOfSpaceError(
                f"{self._plan.options.state}: the disk is full",
                "free some space and run again: finished packages and objects are kept",
            )
        deadline = self._plan.options.deadline
        if deadline is not None and deadline.left <= 0:
            raise deadline.error(progress_of(self.status.record))

    def note_channels(self) -> None:
        """Record the channels that the packages need; planned channels do not exist yet."""
        if not self._plan.environment.pending:
            published.note_channels(self._plan.options.packages, self._plan.environment.channels)

    def summary(self, error: str) -> Summary:
        """Return the run's summary; after a successful compile, also keep its durations for estimates."""
        plan, options = self._plan, self._plan.options
        rows = package_results(plan, self._failed)
        ok = not error and all(row.status.is_published for row in rows)
        attempt, parser = (self._pytorch.plan, self._pytorch.parser) if self._pytorch else (plan, Parser())
        if ok and plan.compiles_staging:
            # the duration of another run is no measure, but the cache has its objects
            keep_last_run(options, self.status.seconds if plan.is_from_scratch else plan.last_run)
        return Summary(
            ok=ok,
            config=options.run_name,
            packages=rows,
            seconds=round(time.monotonic() - self._began, 1),
            log=self._log.path,
            channel=options.packages,
            staging=attempt.staging_decision.use,
            staging_seconds=round(parser.staging_seconds, 1),
            swaps=parser.swaps,
            error=error,
            use=install_line(plan, rows),
            failures=tuple(why.failure for why in self._failed.values() if why.failure),
        )
