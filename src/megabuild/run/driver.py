"""Carries out a plan: checks, builds, publishes and summarises."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Collection

from groundwork import files
from groundwork.errors import BuildError, DeadlineError, IsolationError, MegabuildError, OutOfSpaceError
from groundwork.jobs import Budget
from groundwork.machine import is_full
from groundwork.text import counted, display
from megabuild.engine import archive
from megabuild.engine.output_folder import drop_unpacked
from megabuild.engine.supervisor import TESTS, end_strays
from megabuild.isolation.base import Isolation
from megabuild.plan import upstream_tests
from megabuild.plan.kept_environments import keep_record, mark_complete
from megabuild.plan.last_run import keep_last_runs
from megabuild.plan.plan import Method, Plan
from megabuild.plan.planning import make_plan
from megabuild.run import store_transfer
from megabuild.run.attempt import RunContext
from megabuild.run.build_output import Parser
from megabuild.run.extension import extension_work, make_torch_channel
from megabuild.run.graph import Graph, Inbox, TaskResult, Work
from megabuild.run.logfile import LogFile
from megabuild.run.measure_run import measure_run
from megabuild.run.outlook import Outlook, look_ahead
from megabuild.run.package_test import package_test
from megabuild.run.preflight import check, check_disk
from megabuild.run.progress import Progress
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

#: Extensions built in parallel.
_AT_ONCE = 3
#: Package tests in parallel with the build of other packages.
_TESTS_AT_ONCE = 2


class Driver:
    """One run; the caller holds the lock of its state."""

    def __init__(self, outlook: Outlook, log: LogFile, status: Status) -> None:
        options = outlook.options
        damage = published.repair(options.packages, options.config.platform)
        # read again: another run may have ended since the plan was made
        self._progress = Progress.read(outlook.plan, outlook.progress.stored)
        self._estimate = outlook.estimate
        self._log = log
        self._began = time.monotonic()
        self._pytorch: PyTorchBuild | None = None
        self._inbox: Inbox = queue.SimpleQueue()
        self._shelf = Shelf(options.state, self._inbox)
        self._failed: dict[str, MegabuildError] = {}
        self._archives: dict[str, archive.Archive] = {}  # of published packages, by file name
        self.status = status
        status.record.log = str(log.path)
        self._show_progress()
        if self._progress.is_done:
            last = read_run_state(options.state).record
            status.keeps_file = last is not None and last.status is RunStatus.DONE
        else:
            log.become_latest()
            logger.info("log: %s", display(log.path))
        for problem in damage:
            logger.warning("%s", problem)

    @property
    def _plan(self) -> Plan:
        return self._progress.plan

    def _show_progress(self) -> None:
        """Pass the packages to the status: at the start, and after each preparation."""
        self.status.plan(self._progress.exists, self._estimate.expected)

    def go(self) -> None:
        """Check, build and publish; then upload to the store."""
        try:
            if not self._progress.is_done:
                self._build()
        except (DeadlineError, OutOfSpaceError):  # no time, or no space, to upload
            raise
        except MegabuildError:  # upload finished packages all the same
            deadline = self._plan.options.deadline
            if deadline is None or deadline.left > 0:
                store_transfer.put(self._plan, os.environ, self.status)
            raise
        store_transfer.put(self._plan, os.environ, self.status)

    def _build(self) -> None:
        if self._plan.environment.pending:
            self._prepare_environment()
        self._separate_work()
        self._progress = store_transfer.fetch(self._progress, os.environ, self.status)
        self._show_progress()
        if self._progress.is_done:
            return
        plan = self._plan
        isolation = plan.usable_isolation()
        check(plan, self._estimate, isolation)
        if ended := end_strays(plan.options.state):
            logger.info("ended %s left by a killed run", counted(ended, "process"))
        unpacked = plan.options.unpacked_folder(isolation) / "pkgs"
        drop_unpacked(unpacked, self._progress.exists)
        keep_record(plan)
        self._run_tasks(isolation)

    def _prepare_environment(self) -> None:
        """Have the provider make its environment, and plan the run in it: a survey's plan lacks fingerprints."""
        plan = self._plan
        if plan.environment.root is None:  # else the preparation may install a missing program
            plan.usable_isolation()
        check_disk(plan, self._estimate)
        outlook = look_ahead(make_plan(plan.options, self.status.note), os.environ, self.status.note)
        self._progress = outlook.progress
        self._estimate = outlook.estimate
        self._show_progress()

    def _separate_work(self) -> None:
        """Before a build on the host, remove what isolated builds of the config left."""
        plan = self._plan
        if self._progress.is_done or isinstance(plan.isolation, IsolationError):
            return
        if separate_work(plan.options.state, plan.isolation):
            logger.info("removed the work of isolated builds, whose programs would run on the host")

    def _run_tasks(self, isolation: Isolation) -> None:
        """Run the missing tasks: PyTorch's, its packages' tests, and one per extension and Python."""
        options = self._plan.options
        run = RunContext(
            progress=self._progress,
            estimate=self._estimate,
            isolation=isolation,
            status=self.status,
            log=self._log,
        )
        files.remove(options.state / TESTS)
        published.await_tests(options.packages, self._progress.awaited_tests)
        works = [*self._torch_works(run), *self._extension_works(run)]
        graph = Graph(
            works,
            done=self._done_tasks(),
            failed=self._failed,
            status=self.status,
            publish=self._publish,
            inbox=self._inbox,
            keep_going=options.keep_going,
            on_tick=self._tick,
        )
        try:
            graph.run()
        finally:
            self._shelf.drop_rejected()
        # not reached after a failed test: the failed package stays in this folder
        files.remove(options.state / TESTS)

    def _done_tasks(self) -> set[str]:
        """Return the names of the tasks and packages that need no task."""
        progress = self._progress
        done = set(progress.existing)
        done.update(name_of_test(name) for name in progress.existing)
        done.update(task.name for task in self._plan.extensions if task not in progress.missing_tasks)
        if not progress.missing:
            done.add(PYTORCH)
        return done

    def _torch_works(self, run: RunContext) -> list[Work]:
        """Return the tasks of PyTorch's build and tests; none if it is published."""
        if not self._progress.missing:
            make_torch_channel(self._progress, self._plan.options.state / TESTS)
            return []
        self._pytorch = PyTorchBuild(run, self._shelf)
        works = [self._pytorch.work]
        brief = Budget(self._estimate.jobs.count, tasks=_TESTS_AT_ONCE)
        own = Budget(
            self._estimate.jobs.count
        )  # PyTorch's own tests take hours: no other test waits for them
        for item in self._plan.items:
            if item.file_name not in self._progress.existing:
                budget = own if item.package.name == upstream_tests.PACKAGE else brief
                works.append(package_test(run, budget, self._shelf, item))
        return works

    def _extension_works(self, run: RunContext) -> list[Work]:
        """Return the tasks of the missing extensions; those that cannot be made have failed."""
        works = []
        budget = run.budget(tasks=_AT_ONCE)  # its tasks wait for PyTorch's
        for task in self._progress.missing_tasks:
            if task.method is Method.NOTHING:
                error = BuildError(task.reason)
                error.packages = frozenset(task.file_names)
                self._failed[task.name] = error
            else:
                works.append(extension_work(run, budget, task))
        return works

    def _publish(self, work: Work, result: TaskResult) -> None:
        """Publish a task's packages in the channel; raise if another package installs the same path."""
        if result.archives:
            self._publish_archives(result)
        if work.name == PYTORCH and result.error is None and self._progress.missing_tasks:
            make_torch_channel(self._progress, self._shelf.folder)

    def _publish_archives(self, result: TaskResult) -> None:
        plan = self._plan
        names = [package.path.name for package in result.archives]
        others = self._other_archives(names)
        archive.check_owners([*result.archives, *others])
        for package in (*result.archives, *others):
            self._archives[package.path.name] = package
        records = published.publish(
            plan.options.packages,
            result.archives,
            platform=plan.options.config.platform,
            fingerprints={item.file_name: item.fingerprint for item in plan.all_items},
            seconds=result.seconds,
            is_tested=not plan.untested,
            awaited=self._progress.awaited_tests,
        )
        self.note_channels()  # published packages are used during the run, and after a kill
        for name in names:
            self._log.write("driver", f"published {name} ({records[name].size} bytes)")
        self.status.set_packages(names, PackageState.PUBLISHED)

    def _other_archives(self, names: Collection[str]) -> list[archive.Archive]:
        """Return the plan's published packages, except those of these names."""
        channel = self._plan.options.packages
        records = published.records(channel)
        others = []
        for item in self._plan.all_items:
            name = item.file_name
            record = records.get(name)
            if record is not None and name not in names and record.fingerprint == item.fingerprint:
                others.append(self._archives.get(name) or archive.read(channel / record.path))
        return others

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
        plan = self._plan
        options = plan.options
        rows = package_results(self._progress, self._failed)
        ok = not error and all(row.status.is_published for row in rows)
        if ok:
            mark_complete(options)
        parser = Parser()
        tree = self._progress.tree
        if self._pytorch is not None:
            parser = self._pytorch.parser
            tree = self._pytorch.progress.tree
        if ok and self._progress.needs_staging:
            keep_last_runs(options, measure_run(self._progress, parser, self.status.seconds))
        return Summary(
            ok=ok,
            config=options.run_name,
            packages=rows,
            seconds=round(time.monotonic() - self._began, 1),
            log=self._log.path,
            channel=options.packages,
            staging=tree.use,
            staging_seconds=round(parser.staging_seconds, 1),
            swaps=parser.swaps,
            error=error,
            use=install_line(plan, rows),
            untested="" if all(row.tested for row in rows if row.status.is_published) else plan.untested,
            platform=options.config.platform,
            failures=tuple(why.failure for why in self._failed.values() if why.failure),
        )
