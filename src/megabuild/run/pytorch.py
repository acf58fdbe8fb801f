"""The task that builds libtorch and every Python's pytorch, from one recipe and one reusable compiled tree."""

from __future__ import annotations

import runpy
import threading
from collections.abc import Sequence

from groundwork.errors import SwapRefused
from groundwork.progress import title
from megabuild.engine import output_folder
from megabuild.engine.job import Job
from megabuild.engine.supervisor import Place
from megabuild.isolation.base import Isolation
from megabuild.plan import object_cache, tree_reuse
from megabuild.plan.last_run import keep_left_staging
from megabuild.plan.plan import Plan
from megabuild.plan.tree_reuse import TreeUse
from megabuild.run.attempt import Attempt, RunContext
from megabuild.run.build_output import Parser
from megabuild.run.graph import TaskResult, Work
from megabuild.run.launcher import COMPILER_LAUNCHER
from megabuild.run.package_build import PackageBuild
from megabuild.run.plan_report import staging_sentence
from megabuild.run.progress import Progress
from megabuild.run.sandbox_paths import JobPart, make_job, make_place
from megabuild.run.shelf import Shelf
from megabuild.status.status import logger

NAME = "pytorch"


class PyTorchBuild:
    """Builds PyTorch's packages; its output goes into the run's own log.

    Separate tasks (:mod:`megabuild.run.package_test`) test each package as soon as it is built.
    """

    def __init__(self, run: RunContext, shelf: Shelf) -> None:
        self._run = run
        self._shelf = shelf
        self._budget = run.budget(heavy_jobs=run.estimate.heavy_jobs)
        self._seconds: dict[str, float] = {}
        self.progress = run.progress  #: at the start of the last attempt
        self.parser = Parser()  #: of the last attempt

    @property
    def work(self) -> Work:
        """The task."""
        files = [item.file_name for item in self._run.plan.items]
        return Work(name=NAME, run=self._build, budget=self._budget, provides=files, vital=True)

    def _build(self, jobs: int, stop: threading.Event) -> TaskResult:
        """Build the missing packages; retry with a new staging if the swap refuses a tree that was reused unchecked."""
        result = self._attempt(jobs, stop)
        if isinstance(result.error, SwapRefused) and self.progress.tree.use is TreeUse.REUSE:
            output_folder.drop_stagings(self._run.plan.options.state / "out")
            headline = result.error.message.splitlines()[0]
            logger.warning("%s: retrying: staging runs again with the tree's objects", headline)
            result = self._attempt(jobs, stop)
        return result

    def _attempt(self, jobs: int, stop: threading.Event) -> TaskResult:
        plan = self._run.plan
        state = plan.options.state
        progress = Progress.read(plan)  # an earlier attempt may have published packages, or finished the tree
        self.progress = progress
        if not progress.missing:
            return TaskResult(seconds={})
        with Attempt(self._run, NAME, state, jobs=jobs, stop=stop) as attempt:
            self.parser = attempt.parser
            build = PackageBuild(attempt, progress, plan.items, self._seconds, shelf=self._shelf)
            sandbox = make_place(
                attempt,
                recipe=plan.options.recipe,
                channels=plan.environment.channels,
                written=("tree",) if plan.stages else (),
                heavy_jobs=self._budget.heavy_jobs,
                takes_jobs=True,
            )
            name = plan.staged_name if plan.stages else progress.missing[0].name
            attempt.row.phase(title(name, "", "environment"))
            if plan.stages:
                _prepare_tree(progress, self._run.isolation)
            _, error = build.run(sandbox, _job(attempt, sandbox, planned=list(build.missing)))
            if plan.stages:
                _keep_staging(plan, self._run.isolation)
            return TaskResult(seconds=self._seconds, error=error)


def _job(attempt: Attempt, sandbox: Place, *, planned: Sequence[str]) -> Job:
    """Return the worker's job; other tasks test the packages."""
    plan = attempt.run.plan
    overrides = dict(plan.environment.overrides)
    if sandbox.source is not None:
        overrides["torch_source_path"] = (sandbox.source,)
    env = {
        "STAGING_FINGERPRINT": plan.staging.digest,
        "TORCH_TREE": f"{sandbox.state_inside}/tree",
        "TORCH_CCACHE": f"{sandbox.state_inside}/{COMPILER_LAUNCHER}",
    }
    part = JobPart(planned=planned, test_built=False, keep_going=plan.options.keep_going, env=env)
    return make_job(attempt, sandbox, part, overrides=overrides)


def _keep_staging(plan: Plan, isolation: Isolation) -> None:
    """Record a finished staging, for later runs in this output folder and for plans in others."""
    state = plan.options.state
    staging = tree_reuse.keep_last_staging(state / "tree", state / "out")
    if staging is None or not staging.objects_in:
        return
    if staging.objects_in == object_cache.read_identity(plan.options, isolation):
        keep_left_staging(plan.options, isolation, staging)


def _prepare_tree(progress: Progress, isolation: Isolation) -> None:
    """Prepare the tree before anything is compiled in it."""
    logger.debug("%s", staging_sentence(progress))  # the plan has shown it already
    plan = progress.plan
    state = plan.options.state
    tree = state / "tree"
    objects_in = object_cache.identify(plan.options, isolation)
    tree_reuse.prepare_tree(progress.tree, tree, state / "out", plan.staging, objects_in)
    # The recipe must work without megabuild, so it has its own tree_dates.py, which sync_tree.py imports too.
    tree_dates = plan.options.recipes / "tree_dates.py"
    # never run another feedstock's code outside the isolation
    if not plan.options.own or not tree_dates.is_file():
        return
    seconds = runpy.run_path(str(tree_dates))["mend"](tree).seconds
    if seconds:
        message = "the clock was set back: dates in %s were in the future; shifted them back by %d s"
        logger.warning(message, tree, seconds)
