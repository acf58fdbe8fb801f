"""The task of libtorch and every Python's pytorch: one recipe, one compiled tree that is used again where it fits."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from megabuild.build import events, toolchain_check
from megabuild.build.budget import Budget
from megabuild.build.disk import DiskWatch
from megabuild.build.logfile import LogFile
from megabuild.build.place import View, job, view
from megabuild.build.summary import Summary
from megabuild.build.work import Made, Run, Work
from megabuild.configs.render import PlannedPackage
from megabuild.engine import channel_folder
from megabuild.engine.job import Job
from megabuild.errors import MegabuildError, SwapRefused
from megabuild.plan import stamp
from megabuild.plan.fingerprint import inherits
from megabuild.plan.plan import Plan
from megabuild.plan.planning import looked_again
from megabuild.plan.published import records

NAME = "pytorch"


class PyTorch(Work):
    """Builds PyTorch's packages.

    Parameters
    ----------
    run, budget:
        As for every task.
    log:
        The run's own log.
    """

    name = NAME
    vital = True

    def __init__(self, run: Run, budget: Budget, log: LogFile) -> None:
        super().__init__(run, run.plan.options.state, budget)
        self._log = log
        self._tree = self._state / "tree"
        self._disk = DiskWatch(self._state)
        self._mended = False

    @property
    def packages(self) -> Sequence[PlannedPackage]:
        """Those of the plan that are not there."""
        return self._plan.missing

    @property
    def inputs(self) -> Mapping[str, str]:
        """The fingerprints of the plan's packages."""
        return self._plan.package_fingerprints

    def log(self) -> contextlib.AbstractContextManager[LogFile]:
        """Return the run's log, which stays open."""
        return contextlib.nullcontext(self._log)

    def dependencies(self) -> Sequence[Path]:
        """Return those of its own packages that are published already."""
        channel = self._plan.options.packages
        known = records(channel)
        names = (item.package.file_name for item in self._plan.items if item.exists)
        return [channel / known[name].path for name in names]

    def view(self) -> View:
        """Lay out what the engine sees."""
        plan = self._plan
        channels = plan.environment.channels
        return view(
            plan, self._run.isolation, state=self._state, recipe=plan.options.recipe, channels=channels
        )

    def job(self, seen: View, jobs: int) -> Job:
        """Describe it to the worker."""
        return pytorch_job(self._plan, seen, jobs)

    def prepare(self, seen: View, job: Job, log: LogFile) -> None:
        """Try the compiler, and make the tree fit before anything is compiled in it."""
        plan = self._plan
        compiler = toolchain_check.check(
            plan.missing, seen, job, on_log=lambda line: self.write(log, line), on_tick=self.halt
        )
        self.tell(events.Checked(check="toolchain", detail=compiler or "nothing to compile"))
        decision = plan.staging_decision
        self.tell(events.StagingDecided(decision=decision.decision, reasons=decision.reasons))
        stamp.apply(decision, self._tree, self._out, plan.staging)

    def run(self, jobs: int) -> Made:
        """Do it; of what an attempt before this one has published nothing is made again."""
        self._plan = looked_again(self._plan)
        return super().run(jobs) if self._plan.missing else Made(seconds={})

    def occasion(self, event: events.Event | None) -> None:
        """Look how much of the disk it takes."""
        telling = isinstance(event, (events.PhaseStarted, events.PackageStarted, events.TestRun))
        self._disk.tick(occasion=telling)

    def mended(self, error: MegabuildError) -> str:
        """Have staging run once more where the swap is refused over a tree that staging was not asked about."""
        if not isinstance(error, SwapRefused) or self._mended:
            return ""
        if self._plan.staging_decision.decision != "reuse":
            return ""
        self._mended = True
        channel_folder.drop_stagings(self._out)
        return "staging runs once more, over the objects that are there"

    def retried(self, error: MegabuildError, jobs: int) -> events.Event:
        """Say that it runs once more, with fewer jobs."""
        why = f"once more with {jobs} compile {'job' if jobs == 1 else 'jobs'}"
        return events.Warned(message=f"{error.message.splitlines()[0]}: {why}")

    def add_to(self, summary: Summary) -> Summary:
        """Add what this task knows to the run's summary."""
        totals = self._parser.totals
        own = [item.package for item in self._plan.items]
        made = [package for package in own if inherits(package) and package.file_name in self._seconds]
        return replace(
            summary,
            staging=self._plan.staging_decision.decision,
            staging_seconds=round(totals.staging_seconds, 1),
            swaps={python: dict(values) for python, values in totals.swaps.items()},
            reused=dict(totals.reused),
            disk=self._disk.result(len(made)),
        )


def pytorch_job(plan: Plan, seen: View, jobs: int) -> Job:
    """Describe the task to the worker."""
    options = plan.options
    source = {"torch_source_path": (seen.source,)} if seen.source is not None else {}
    env = {
        "STAGING_FINGERPRINT": plan.staging_fingerprint,
        "TORCH_TREE": f"{seen.state}/tree",
        "TORCH_CCACHE": seen.launcher,
        "MAX_JOBS": str(jobs),
    }
    made = job(plan, seen, {**plan.overrides, **source}, jobs=jobs, env=env)
    return replace(made, keep_going=options.keep_going)
