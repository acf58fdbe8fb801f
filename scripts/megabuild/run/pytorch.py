"""The task of libtorch and every Python's pytorch: one recipe, one compiled tree that is used again where it fits."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from groundwork import channel_folder, files
from groundwork.errors import MegabuildError, SwapRefused
from groundwork.jobs import Budget
from groundwork.progress import title
from megabuild.engine import output_folder
from megabuild.engine.job import Job, Outcome
from megabuild.engine.supervisor import TESTS
from megabuild.plan import tree_reuse
from megabuild.plan.plan import Plan, PlanItem
from megabuild.plan.planning import compare_with_disk
from megabuild.plan.report import staging_sentence
from megabuild.run.build_output import BuildStep
from megabuild.run.build_task import BuildTask
from megabuild.run.logfile import LogFile
from megabuild.run.sandbox_paths import View, job, view
from megabuild.run.work import BROKEN, RunContext, TaskResult
from megabuild.status.status import logger

NAME = "pytorch"


class MemoryBudget(Budget):
    """The compile jobs of PyTorch's task, of which only some may be at heavy objects."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(lambda: plan.jobs)
        self.heavy_jobs = plan.heavy_jobs

    def halve(self) -> int:
        """Allow half as many of both from now on; return how many, or 0 where it was but one."""
        self.heavy_jobs -= self.heavy_jobs // 2
        return super().halve()


class PyTorchWork(BuildTask):
    """Builds PyTorch's packages; what it prints goes into the run's own log.

    Their tests are tasks of their own (:mod:`megabuild.run.package_test`), which begin as soon as a package is built.
    """

    name = NAME
    vital = True

    def __init__(self, run: RunContext, budget: MemoryBudget) -> None:
        super().__init__(run, run.plan.options.state, budget)
        self._memory_budget = budget
        self._tree = self._state / "tree"
        self._swap_mended = False
        self._rejected: set[str] = set()
        self._ended = False
        self.provides = tuple(item.package.file_name for item in run.plan.items)
        #: packages as they were when they appeared, where no build can write to them; those whose copies are whole
        self.shelf = self._state / TESTS / "built"
        self.shelved: list[Path] = []

    @property
    def items(self) -> Sequence[PlanItem]:
        return self._plan.items

    def describe(self, jobs: int) -> tuple[View, Job]:
        plan, options = self._plan, self._plan.options
        seen = view(
            plan, self._run.isolation, state=options.state, recipe=options.recipe,
            channels=plan.environment.channels, written=("tree",) if plan.stages else (),
            heavy_jobs=self._memory_budget.heavy_jobs,
        )  # fmt: skip
        source = {"torch_source_path": (seen.source,)} if seen.source is not None else {}
        env = {
            "STAGING_FINGERPRINT": plan.staging.digest,
            "TORCH_TREE": f"{seen.state_inside}/tree",
            "TORCH_CCACHE": seen.launcher,
        }
        described = job(plan, seen, {**plan.overrides, **source}, jobs=jobs, env=env)
        return seen, replace(described, keep_going=options.keep_going, test=False)

    def prepare(self, seen: View, job: Job, log: LogFile) -> None:
        """Prepare the tree before anything is compiled in it."""
        plan = self._plan
        name = plan.staged_name if plan.stages else plan.missing[0].name
        self.task.phase(title(name, "", "environment"))
        if not plan.stages:
            return
        logger.debug("%s", staging_sentence(plan))  # the plan shows it
        tree_reuse.prepare_tree(plan.staging_decision, self._tree, self._out, plan.staging)
        # The recipe's own, which sync_tree.py imports: a recipe stands alone, so it is run from there.
        tree_dates = plan.options.recipes / "tree_dates.py"
        if not tree_dates.is_file() or not plan.options.own:  # nothing of another's is run here
            return
        if seconds := runpy.run_path(str(tree_dates))["mend"](self._tree).seconds:
            said = "the clock was set back: dates in %s were in the future, and are set back by %d s"
            logger.warning(said, self._tree, seconds)

    def run(self, jobs: int) -> TaskResult:
        """Build what is missing; nothing that an attempt before this one has published is made again."""
        self._plan = compare_with_disk(self._plan)
        self._ended = False
        try:
            return super().run(jobs)
        finally:
            self._ended = True
            self._drop_rejected()  # not before: packages that are still being built may need them

    def keep_built(self, package: Path) -> None:
        """Put a copy where the tests, and the extensions, take it from."""
        copy = self.shelf / package.parent.name / package.name
        files.copy(package, copy)
        self.shelved.append(copy)
        self._run.announce(package.name)

    def take(self, step: BuildStep) -> None:
        """Take a step; a staging that has come to its end is flushed before anything is made from it."""
        if step.kind == "package":
            output_folder.seal_stagings(self._out)
        super().take(step)

    def put_aside(self, built: Path) -> None:
        """Take a package that has failed its test out of what the next run continues from."""
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
        if not isinstance(error, SwapRefused):
            return super().mend(error)
        if self._swap_mended or self._plan.staging_decision.decision != "reuse":
            return ""
        self._swap_mended = True
        output_folder.drop_stagings(self._out)
        return "staging runs once more, over the tree's objects"

    def figures(self) -> dict[str, Any]:
        """Return what the run's summary has of this task."""
        return {
            "staging": self._plan.staging_decision.decision,
            "staging_seconds": round(self._parser.staging_seconds, 1),
            "swaps": self._parser.swaps,
        }
