"""The task of libtorch and every Python's pytorch: one recipe, one compiled tree that is used again where it fits."""

from __future__ import annotations

import contextlib
import os
import runpy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from groundwork import channel_folder, files
from groundwork.errors import MegabuildError, PreflightError, SwapRefused
from groundwork.progress import title
from groundwork.text import counted
from megabuild.engine import output_folder
from megabuild.engine.job import Job, Outcome
from megabuild.engine.supervisor import TESTS
from megabuild.isolation.base import Isolation
from megabuild.plan import tree_reuse
from megabuild.plan.plan import Plan, PlanItem
from megabuild.plan.planning import compare_with_disk
from megabuild.plan.report import staging_sentence
from megabuild.run import preflight
from megabuild.run.build_output import BuildStep
from megabuild.run.build_task import BuildTask
from megabuild.run.logfile import LogFile
from megabuild.run.memory_budget import MemoryBudget
from megabuild.run.sandbox_paths import View, job, view
from megabuild.run.summary import Summary
from megabuild.run.work import BROKEN, RunContext, TaskResult
from megabuild.status.status import logger

NAME = "pytorch"


class PyTorchWork(BuildTask):
    """Builds PyTorch's packages; what it prints goes into the run's own log.

    Their tests are tasks of their own (:mod:`megabuild.run.package_test`), which begin as soon as a package is there.
    """

    name = NAME
    vital = True

    def __init__(self, run: RunContext, budget: MemoryBudget, log: LogFile) -> None:
        super().__init__(run, run.plan.options.state, budget)
        self._memory_budget = budget
        self._log = log
        self._tree = self._state / "tree"
        self._mended = False
        self._rejected: set[str] = set()
        self._ended = False
        self.provides = tuple(item.package.file_name for item in run.plan.items)
        #: packages as they were when they appeared, where no build can write to them; those whose copies are whole
        self.shelf = self._state / TESTS / "built"
        self.shelved: list[Path] = []

    @property
    def items(self) -> Sequence[PlanItem]:
        return self._plan.items

    def log(self) -> contextlib.AbstractContextManager[LogFile]:
        """Return the run's log, which stays open."""
        return contextlib.nullcontext(self._log)

    def describe(self, jobs: int) -> tuple[View, Job]:
        return describe_pytorch(self._plan, self._run.isolation, jobs, self._memory_budget.heavy_jobs)

    def prepare(self, seen: View, job: Job, log: LogFile) -> None:
        """Check the compiler, and prepare the tree before anything is compiled in it."""
        plan = self._plan
        if preflight.compilers(plan.missing):
            self._phase_began("toolchain")
            try:
                compiler = self._check_toolchain(seen, job, log)
            except PreflightError as error:  # perhaps a power cut while the engine unpacked its packages
                unpacked = plan.options.cache / "rattler" / plan.options.cache_name / "pkgs"
                if not os.path.lexists(unpacked):
                    raise
                what = (
                    f"{error.message.splitlines()[0]}; packages are unpacked again, and it is tried once more"
                )
                logger.warning("%s", what)
                files.remove(unpacked)
                compiler = self._check_toolchain(seen, job, log)
            logger.info("checked toolchain: %s", compiler)
        decision = plan.staging_decision
        self._phase_began("environment")
        if not plan.stages:
            return
        logger.debug("%s", staging_sentence(plan))  # the plan shows it
        tree_reuse.apply(decision, self._tree, self._out, plan.staging)
        # The recipe's own, which sync_tree.py imports: a recipe stands alone, so it is run from there.
        mending = plan.options.recipes / "tree_dates.py"
        if not mending.is_file() or not plan.options.own:  # nothing of another's is run here
            return
        tree_dates = runpy.run_path(str(mending))
        if seconds := tree_dates["mend"](self._tree).seconds:
            logger.warning(
                "the clock was set back: dates in %s were in the future, and are set back by %d s; "
                "otherwise ninja would not see changes",
                self._tree,
                seconds,
            )

    def _check_toolchain(self, seen: View, job: Job, log: LogFile) -> str:
        return preflight.toolchain(
            self._plan.missing, seen, job, on_log=lambda line: self.write(log, line), on_tick=self.halt
        )

    def _phase_began(self, phase: str) -> None:
        """Say what is done before a build script says it."""
        made = self._plan.staged_name if self._plan.stages else self._plan.missing[0].name
        self.task.phase(title(made, "", phase))

    def run(self, jobs: int) -> TaskResult:
        """Build what is missing; nothing that an attempt before this one has published is made again."""
        self._plan = compare_with_disk(self._plan)
        self._ended = False
        try:
            return super().run(jobs)
        finally:
            self._ended = True
            self._drop_rejected()  # not before: what goes on being built may need them

    def built(self, package: Path) -> None:
        """Put a copy where the tests, and the extensions, take it from."""
        copy = self.shelf / package.parent.name / package.name
        files.copy(package, copy)
        self.shelved.append(copy)
        self._run.there(package.name)

    def take(self, step: BuildStep) -> None:
        """Take a step; a staging that has come to its end is flushed before anything is made from it."""
        if step.kind == "package":
            output_folder.seal_stagings(self._out)
        super().take(step)

    def put_aside(self, built: Path) -> None:
        """Take a package that has failed its test out of what the next run goes on from."""
        files.link(built, self._state / TESTS / BROKEN / built.name)  # others are tested with it
        self._rejected.add(built.name)
        if self._ended:
            self._drop_rejected()

    def _drop_rejected(self) -> None:
        for path in channel_folder.package_files(self._out):
            if path.name in self._rejected:
                files.remove(path)

    def collect(self, outcome: Outcome, jobs: int, log: Path) -> TaskResult:
        """Return what went wrong, if anything: the packages have tasks of their own."""
        output_folder.seal_stagings(self._out)
        return TaskResult(seconds=self.seconds, error=self.error_of(outcome, jobs, log))

    def mend(self, error: MegabuildError) -> str:
        """Have staging run again where the swap is refused over a tree that was reused unchecked."""
        if not isinstance(error, SwapRefused) or self._mended:
            return super().mend(error)
        if self._plan.staging_decision.decision != "reuse":
            return ""
        self._mended = True
        output_folder.drop_stagings(self._out)
        return "staging runs once more, over the objects that are there"

    def report_retry(self, error: MegabuildError, jobs: int) -> None:
        """Report another attempt, with fewer jobs."""
        heavy = self._memory_budget.heavy_jobs
        why = f"once more with {counted(jobs, 'compile job')}" + (
            f", {heavy} of heavy objects" if heavy else ""
        )
        logger.warning("%s: %s", error.message.splitlines()[0], why)

    def add_to(self, summary: Summary) -> Summary:
        """Add what this task knows to the run's summary."""
        totals = self._parser.totals
        return replace(
            summary,
            staging=self._plan.staging_decision.decision,
            staged=self._plan.staged_name,
            staging_seconds=round(totals.staging_seconds, 1),
            compiles=self._plan.compiles_torch,
            swaps={python: dict(values) for python, values in totals.swaps.items()},
            reused=dict(totals.reused),
            object_cache=dict(totals.object_cache),
        )


def describe_pytorch(plan: Plan, isolation: Isolation, jobs: int, heavy_jobs: int = 0) -> tuple[View, Job]:
    """Lay out what the engine sees of PyTorch's task, and describe it to the worker."""
    options, channels = plan.options, plan.environment.channels
    written = ("tree",) if plan.stages else ()
    seen = view(
        plan, isolation, state=options.state, recipe=options.recipe, channels=channels, written=written,
        heavy_jobs=heavy_jobs,
    )  # fmt: skip
    source = {"torch_source_path": (seen.source,)} if seen.source is not None else {}
    env = {
        "STAGING_FINGERPRINT": plan.staging.digest,
        "TORCH_TREE": f"{seen.state_inside}/tree",
        "TORCH_CCACHE": seen.launcher,
    }
    made = job(plan, seen, {**plan.overrides, **source}, jobs=jobs, env=env)
    return seen, replace(made, keep_going=options.keep_going, test=False)
