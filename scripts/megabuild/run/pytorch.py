"""The task that builds libtorch and every Python's pytorch, from one recipe and one reusable compiled tree."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from groundwork.errors import MegabuildError, SwapRefused
from groundwork.jobs import Budget
from groundwork.progress import title
from megabuild.engine import output_folder
from megabuild.engine.job import Job, Outcome
from megabuild.plan import tree_reuse
from megabuild.plan.plan import Plan, PlanItem
from megabuild.plan.plan_report import staging_sentence
from megabuild.plan.planning import compare_with_disk
from megabuild.run.build_output import BuildStep
from megabuild.run.build_task import BuildTask
from megabuild.run.logfile import LogFile
from megabuild.run.sandbox_paths import SandboxPaths, job, make_sandbox_paths
from megabuild.run.shelf import Shelf
from megabuild.run.work import RunContext, TaskResult
from megabuild.status.status import logger

NAME = "pytorch"


class MemoryBudget(Budget):
    """The compile jobs of PyTorch's task, and how many of them may compile heavy objects."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(lambda: plan.jobs)
        self.heavy_jobs = plan.heavy_jobs

    def halve(self) -> int:
        """Halve both limits; return the new number of jobs, or 0 if it was 1."""
        self.heavy_jobs -= self.heavy_jobs // 2
        return super().halve()


class PyTorchWork(BuildTask):
    """Builds PyTorch's packages; its output goes into the run's own log.

    Separate tasks (:mod:`megabuild.run.package_test`) test each package as soon as it is built.
    """

    name = NAME
    vital = True

    def __init__(self, run: RunContext, budget: MemoryBudget, shelf: Shelf) -> None:
        super().__init__(run, run.plan.options.state, budget)
        self._left = run.plan  # changes from attempt to attempt: each publishes packages
        self._memory_budget = budget
        self._tree = self._state / "tree"
        self._swap_retried = False
        self._shelf = shelf
        self.provides = tuple(item.package.file_name for item in run.plan.items)

    @property
    def items(self) -> Sequence[PlanItem]:
        return self._left.items

    def describe(self, jobs: int) -> tuple[SandboxPaths, Job]:
        plan, options = self._left, self._left.options
        sandbox = make_sandbox_paths(
            plan, self._run.isolation, state=options.state, recipe=options.recipe,
            channels=plan.environment.channels, written=("tree",) if plan.stages else (),
            heavy_jobs=self._memory_budget.heavy_jobs,
        )  # fmt: skip
        source = {"torch_source_path": (sandbox.source,)} if sandbox.source is not None else {}
        env = {
            "STAGING_FINGERPRINT": plan.staging.digest,
            "TORCH_TREE": f"{sandbox.state_inside}/tree",
            "TORCH_CCACHE": sandbox.launcher,
        }
        described = job(plan, sandbox, {**plan.overrides, **source}, jobs=jobs, env=env)
        return sandbox, replace(described, keep_going=options.keep_going, test=False)

    def prepare(self, sandbox: SandboxPaths, job: Job, log: LogFile) -> None:
        """Prepare the tree before anything is compiled in it."""
        plan = self._left
        name = plan.staged_name if plan.stages else plan.missing[0].name
        self.task.phase(title(name, "", "environment"))
        if not plan.stages:
            return
        logger.debug("%s", staging_sentence(plan))  # the plan has shown it already
        tree_reuse.prepare_tree(plan.staging_decision, self._tree, self._out, plan.staging)
        # The recipe must work without megabuild, so it has its own tree_dates.py, which sync_tree.py imports too.
        tree_dates = plan.options.recipes / "tree_dates.py"
        # never run another feedstock's code outside the isolation
        if not tree_dates.is_file() or not plan.options.own:
            return
        if seconds := runpy.run_path(str(tree_dates))["mend"](self._tree).seconds:
            said = "the clock was set back: dates in %s were in the future; shifted them back by %d s"
            logger.warning(said, self._tree, seconds)

    def run(self, jobs: int) -> TaskResult:
        """Build the missing packages, without those that an earlier attempt published."""
        self._left = compare_with_disk(self._plan)
        with self._shelf.building():
            return super().run(jobs)

    def keep_built(self, package: Path) -> None:
        """Copy a package for tests and extensions, and announce it."""
        self._shelf.add(package, self.seconds.get(package.name, 0.0))
        self._run.announce(package.name)

    def take(self, step: BuildStep) -> None:
        """Handle a step; flush a finished staging to the disk before packages are made from it."""
        if step.kind == "package":
            output_folder.seal_stagings(self._out)
        super().take(step)

    def collect(self, outcome: Outcome, jobs: int, log: Path) -> TaskResult:
        """Return the build's error, if any; the packages' tests are separate tasks."""
        output_folder.seal_stagings(self._out)
        return TaskResult(seconds=self.seconds, error=self.error_of(outcome, jobs, log))

    def prepare_retry(self, error: MegabuildError) -> str:
        """Retry with a new staging if the swap refuses a tree that was reused unchecked."""
        if not isinstance(error, SwapRefused):
            return super().prepare_retry(error)
        if self._swap_retried or self._left.staging_decision.decision != "reuse":
            return ""
        self._swap_retried = True
        output_folder.drop_stagings(self._out)
        return "retrying: staging runs again with the tree's objects"

    def figures(self) -> dict[str, Any]:
        """Return this task's fields of the run's summary."""
        return {
            "staging": self._left.staging_decision.decision,
            "staging_seconds": round(self._parser.staging_seconds, 1),
            "swaps": self._parser.swaps,
        }
