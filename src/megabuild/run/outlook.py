"""What a run begins with: a plan, what exists of it already, and an estimate of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from groundwork.errors import IsolationError
from groundwork.progress import Notes
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan
from megabuild.plan.tree_reuse import TreeUse
from megabuild.run.estimate import Estimate, estimate
from megabuild.run.progress import Progress
from megabuild.run.store_lookup import ask_store


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """A plan before it is carried out."""

    progress: Progress
    estimate: Estimate  #: of the work that is left after everything stored is fetched

    @property
    def plan(self) -> Plan:
        return self.progress.plan

    @property
    def options(self) -> Options:
        return self.progress.plan.options

    @property
    def problem(self) -> IsolationError | None:
        """The error with which a run of the plan would end at once, if it has work to do."""
        isolation = self.plan.isolation
        if isinstance(isolation, IsolationError) and not self.progress.when_fetched().is_done:
            return isolation
        return None


def look_ahead(plan: Plan, environ: Mapping[str, str], report: Notes) -> Outlook:
    """Compare a plan with the disk and the store, and estimate the rest; changes no files.

    Raises UsageError: The store's address is invalid.
    """
    here = Progress.read(plan)
    with_tree = here.needs_staging and here.tree.use is not TreeUse.REUSE
    stored = ask_store(plan, here.existing, environ, report, with_tree=with_tree)
    progress = replace(here, stored=stored)
    return Outlook(progress=progress, estimate=estimate(progress.when_fetched()))
