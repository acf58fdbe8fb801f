"""The long part of a run: heal, decide about staging, run the engine, look into its packages, publish them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from megabuild.configs.render import PlannedPackage
from megabuild.engine import archive, cache, reproducible
from megabuild.engine.job import Outcome
from megabuild.engine.logs import LogFollower, LogLine
from megabuild.engine.supervisor import run_worker
from megabuild.errors import BuildError, MegabuildError
from megabuild.isolation.base import Isolation
from megabuild.resources.jobs import Jobs
from megabuild.run import events, failure, publish, stamp, toolchain
from megabuild.run.disk import DiskWatch
from megabuild.run.fingerprint import inherits
from megabuild.run.leftovers import settle
from megabuild.run.logfile import LogFile
from megabuild.run.objects import Objects
from megabuild.run.options import Plan
from megabuild.run.place import cache_folder, job, view
from megabuild.run.progress import STAGING, Parser
from megabuild.run.summary import Summary


class Build:
    """The long part of one run.

    Parameters
    ----------
    plan:
        What to build; its state is locked.
    isolation:
        Where, checked.
    jobs:
        Compile jobs at once.
    tell:
        Takes events.
    log:
        Takes every line.
    """

    def __init__(
        self,
        plan: Plan,
        isolation: Isolation,
        jobs: Jobs,
        *,
        tell: Callable[[events.Event], None],
        log: LogFile,
    ) -> None:
        self._plan = plan
        self._options = plan.options
        self._isolation = isolation
        self._jobs = jobs
        self._tell = tell
        self._log = log
        self._out = self._options.state / "out"
        self._tree = self._options.state / "tree"
        self._parser = Parser()
        self._follower = LogFollower(self._options.state)
        self._disk = DiskWatch(self._options.state)
        self._objects = Objects(self._options.state)
        self._recent = failure.Recent()
        self._phase = ""
        self._seen: set[str] = set()
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()

    def run(self) -> None:
        """Do it.

        Raises
        ------
        MegabuildError
            What failed; what was finished before is kept for the next run.
        """
        settled = settle(self._plan)
        for what in settled.healed:
            self._tell(events.Healed(what=what))
        self._seen = {path.name for path in cache.package_files(self._out)}
        seen = view(self._plan, self._isolation, cache_folder(self._options, os.environ))
        task = job(self._plan, seen, jobs=self._jobs.count, leftovers=settled.untested)
        compiler = toolchain.check(self._plan.missing, seen, task, on_log=self._log_line)
        self._tell(events.Checked(check="toolchain", detail=compiler or "nothing to compile"))
        decision = self._plan.staging_decision
        self._tell(events.StagingDecided(decision=decision.decision, reasons=decision.reasons))
        stamp.apply(decision, self._tree, self._out, self._plan.staging)
        self._objects.begin(self._tree)
        self._recent = failure.Recent()  # the check's own lines explain nothing from here on
        with self._follower:
            outcome = run_worker(seen.place, task, on_line=self._engine_line, on_tick=self._tick)
            self._tick(last=True)
        self._disk.tick(occasion=True)
        for event in self._objects.reused(self._tree, self._parser.totals):
            self._tell(event)
        self._finish(outcome)

    # ------------------------------------------------------------------------------------------ listening

    def _tick(self, *, last: bool = False) -> None:
        for line in self._follower.poll(last=last):
            self._log_line(line)
            self._objects.feed(line)
            for event in self._parser.feed(line):
                if isinstance(event, (events.PhaseStarted, events.PackageStarted, events.TestRun)):
                    if isinstance(event, events.PhaseStarted):
                        self._phase = event.phase
                    self._disk.tick(occasion=True)
                self._tell(event)
        self._disk.tick()
        self._new_packages()

    def _log_line(self, line: LogLine) -> None:
        source = " ".join(word for word in (line.package or STAGING, line.package and line.python) if word)
        source = f"test:{source}" if line.kind == "test" else source
        text = self._log.write(source, line.text)
        self._recent.add(replace(line, text=text))
        self._tell(events.LogLine(source=source, text=text))

    def _engine_line(self, text: str) -> None:
        masked = self._log.write("engine", text)
        self._recent.add_engine(masked)
        self._tell(events.LogLine(source="engine", text=masked))

    def _new_packages(self) -> None:
        planned = {package.file_name: package for package in self._plan.missing}
        for path in cache.package_files(self._out):
            if path.name in self._seen:
                continue
            self._seen.add(path.name)
            if path.name in planned:
                package = planned[path.name]
                self._seconds[path.name] = round(self._parser.seconds(), 1)
                self._tell(
                    events.PackageBuilt(
                        name=package.name,
                        version=package.version,
                        build_string=package.build_string,
                        seconds=self._seconds[path.name],
                    )
                )

    # ------------------------------------------------------------------------------------------ finishing

    def _finish(self, outcome: Outcome) -> None:
        """Publish what is finished and passed its tests, whatever else failed; then raise what went wrong."""
        self._failed = {path.name for path in (self._out / "broken").glob("*.conda")}
        wanted = {package.file_name: package for package in self._plan.missing}
        passed = [
            path
            for path in cache.package_files(self._out)
            if path.name in wanted and path.name in outcome.passed
        ]
        date = reproducible.recipe_date(self._options.root)
        for path in passed:
            reproducible.normalise(path, date)
        self._publish([publish.verify(wanted[path.name], path) for path in passed])
        if self._options.skip_tests:
            self._tell(
                events.Warned(message="without tests nothing is published: the next run tests what is there")
            )
        if not outcome.ok:
            raise self._explain(outcome)
        stamp.finished(self._tree)
        missing = sorted(wanted.keys() - {path.name for path in cache.package_files(self._out)})
        if missing and self._options.up_to is None:
            raise self._incomplete(missing)

    def _explain(self, outcome: Outcome) -> MegabuildError:
        what, lines = self._recent.culprit(outcome, self._failed)
        return failure.explain(
            outcome,
            lines=lines,
            what=what,
            phase=self._phase,
            jobs=self._jobs.count,
            log=self._log.path,
            state=self._options.state,
        )

    def _incomplete(self, missing: list[str]) -> BuildError:
        count = f"{len(missing)} of {len(self._plan.items)}"
        return BuildError(
            f"{count} packages were not built: {', '.join(missing)}\nlog: {self._log.path}",
            "correct the cause and run again: finished packages are kept",
        )

    def _publish(self, archives: list[archive.Archive]) -> None:
        if not archives:
            return
        options = self._options
        known = publish.records(options.packages)
        there = [known[item.package.file_name] for item in self._plan.items if item.exists]
        others = [archive.read(options.packages / record.path) for record in there]
        publish.check_owners([*archives, *others])
        publish.publish(
            options.packages,
            archives,
            platform=options.config.platform,
            fingerprints=self._plan.package_fingerprints,
            seconds=self._seconds,
        )

    def failed(self, package: PlannedPackage) -> bool:
        """Say whether the engine put a package aside as broken."""
        return package.file_name in self._failed

    def add_to(self, summary: Summary) -> Summary:
        """Add what this part of the run knows to the run's summary."""
        totals = self._parser.totals
        inheriting = [
            package for package in self._plan.missing if inherits(package) and package.file_name in self._seen
        ]
        return replace(
            summary,
            staging_seconds=round(totals.staging_seconds, 1),
            swaps={python: dict(values) for python, values in totals.swaps.items()},
            reused=dict(totals.reused),
            disk=self._disk.result(len(inheriting)),
        )
