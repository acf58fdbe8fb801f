"""How far a plan has been carried out: the packages that exist, and what is left of a former compile."""

from __future__ import annotations

from dataclasses import dataclass, replace

from groundwork.errors import IsolationError
from groundwork.names import PackageId, is_of_package
from megabuild.configs.render import PlannedPackage
from megabuild.isolation.base import Isolation
from megabuild.plan import fingerprint, object_cache, tree_reuse, upstream_tests, work_record
from megabuild.plan.last_run import RunKind, read_left_staging
from megabuild.plan.object_cache import has_object_cache
from megabuild.plan.plan import Method, Plan, PlanItem, Task
from megabuild.plan.tree_reuse import Decision, TreeUse
from megabuild.run.store_lookup import NOTHING_STORED, Stored
from megabuild.store import published
from megabuild.store.published import PublishedPackage

#: Share of its objects that a config may compile at the same time as a config with the same objects: both may compile
#: them, which costs less than to wait.
_FEW = 0.05


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What exists of a plan at one moment; :meth:`read` makes a newer one."""

    plan: Plan
    #: file names of packages that are published, verified, and were made from the same inputs
    existing: frozenset[str] = frozenset()
    untested: frozenset[str] = frozenset()  #: those among them whose own tests never ran
    #: those among them for which a run had PyTorch's own tests, which failed or have not ended
    awaiting: frozenset[str] = frozenset()
    #: name and variant of all packages of the channel, of any build
    former: frozenset[tuple[str, str]] = frozenset()
    tree: Decision = tree_reuse.NOTHING_STAGED  #: how the former compile is used
    stored: Stored = NOTHING_STORED  #: packages fetched from a store instead of built

    @classmethod
    def read(cls, plan: Plan, stored: Stored = NOTHING_STORED) -> Progress:
        """Compare a plan with its channel and its tree; changes no files. ``stored``: the answer of a store."""
        channel = plan.options.packages
        records = published.records(channel)
        existing = set[str]()
        for item in plan.all_items:
            if is_finished(plan, records.get(item.file_name), item):
                existing.add(item.file_name)
        untested = [name for name in existing if not records[name].is_tested]
        awaiting = [name for name in existing if records[name].awaits]
        former = [PackageId.of_file(name) for name in records if is_of_package(name)]
        return cls(
            plan=plan,
            existing=frozenset(existing),
            untested=frozenset(untested),
            awaiting=frozenset(awaiting),
            former=frozenset((package.name, package.kind) for package in former),
            tree=_decide(plan),
            stored=stored,
        )

    def when_fetched(self) -> Progress:
        """Return the progress as if everything that the store has were fetched."""
        tree = self.tree
        if self.stored.staging is not None:
            tree = Decision(use=TreeUse.REUSE, reasons=())
        return replace(self, existing=self.existing | self.stored.packages.keys(), tree=tree)

    @property
    def passed(self) -> frozenset[str]:
        """The file names of existing packages that have passed all tests that runs had for them."""
        return self.existing - self.untested - self.awaiting

    @property
    def exists(self) -> dict[str, bool]:
        """Whether each package exists, by file name."""
        return {name: name in self.existing for name in self.plan.file_names}

    @property
    def missing(self) -> tuple[PlannedPackage, ...]:
        """PyTorch's packages that are not published yet."""
        return tuple(item.package for item in self.plan.items if item.file_name not in self.existing)

    @property
    def published_torch(self) -> list[str]:
        """The file names of PyTorch's published packages."""
        return [item.file_name for item in self.plan.items if item.file_name in self.existing]

    @property
    def awaited_tests(self) -> dict[str, str]:
        """The packages of PyTorch's own tests that have not passed, by the packages that they test, as file names."""
        return upstream_tests.awaited_tests((item.package for item in self.plan.items), self.missing)

    @property
    def missing_tasks(self) -> tuple[Task, ...]:
        """The extensions' tasks with missing packages."""
        return tuple(task for task in self.plan.extensions if not self.existing.issuperset(task.file_names))

    @property
    def is_done(self) -> bool:
        """Whether all packages exist."""
        return self.existing.issuperset(self.plan.file_names)

    @property
    def rounds(self) -> int:
        """Number of Pythons to build for; in another feedstock, packages for no Python count as one.

        PyTorch's own tests are not built.
        """
        pythons = {package.python for package in self.missing if package.name != upstream_tests.PACKAGE}
        if not self.plan.is_foreign:
            pythons.discard(None)
        return len(pythons)

    @property
    def needs_staging(self) -> bool:
        """Whether a missing package is built from the staging output."""
        return any(fingerprint.inherits(package) for package in self.missing)

    @property
    def compiles_staging(self) -> bool:
        """Whether the staging output, libtorch, is compiled."""
        is_there = self.tree.use is TreeUse.REUSE or self.stored.staging is not None
        return self.needs_staging and not is_there

    @property
    def has_object_cache(self) -> bool:
        """Whether a former run's object cache exists, and is used."""
        isolation = self.plan.isolation
        if isinstance(isolation, IsolationError):
            return False
        return has_object_cache(self.plan.options, isolation)

    @property
    def has_objects(self) -> bool:
        """Whether the tree, or the object cache, has all objects but those that the plan's changes need."""
        if self.tree.use is TreeUse.RESUME:
            return self.tree.is_complete
        is_known = self.tree.missing is not None and self.tree.missing != self.tree.objects
        return is_known and self.has_object_cache

    @property
    def kind(self) -> RunKind | None:
        """The kind of run that the whole config needs; None if an unfinished compile or former packages do a part."""
        staged = {item.file_name for item in self.plan.items if fingerprint.inherits(item.package)}
        if staged & self.existing or not self.needs_staging:
            return None
        if not self.compiles_staging:
            return RunKind.REPACK
        if self.has_objects:
            return RunKind.REBUILD
        return None if self.tree.use is TreeUse.RESUME else RunKind.SCRATCH

    @property
    def compiles_little(self) -> bool:
        """Whether former runs have left all objects but a few, those of each Python and extension included."""
        if not self._has_former_bindings:
            return False
        if not self.compiles_staging:
            return True
        missing = self.tree.missing
        objects = self.tree.objects
        if missing is None or objects is None:
            return False
        return self.has_objects and missing.total <= _FEW * objects.total

    @property
    def _has_former_bindings(self) -> bool:
        """Whether the object cache has the objects of each Python: the channel has a former build of each package."""
        compiled = list(self.missing)
        for task in self.missing_tasks:
            if task.method is Method.COMPILE:
                compiled += task.packages
        built = {(package.name, package.id.kind) for package in compiled}
        return self.has_object_cache and built <= self.former


def is_finished(plan: Plan, record: PublishedPackage | None, item: PlanItem) -> bool:
    """Return whether a planned package is published, and tested if this machine can run its tests."""
    if record is not None and not record.is_tested and not plan.untested:
        return False
    return published.is_published(plan.options.packages, record, item.fingerprint)


def _decide(plan: Plan) -> Decision:
    if not plan.stages:
        return tree_reuse.NOTHING_STAGED
    state = plan.options.state
    decision = tree_reuse.decide(state / "tree", state / "out", plan.staging)
    isolation = plan.isolation
    has_no_tree = decision.use in (TreeUse.FRESH, TreeUse.RECOMPILE)
    if has_no_tree and not _is_in_cache(plan, decision):
        # its objects are gone, or go, with the tree
        decision = replace(decision, missing=None, objects=None)
    if decision.use is TreeUse.FRESH:
        return _with_left_objects(plan, decision)
    if not isinstance(isolation, Isolation):
        return decision
    if not work_record.is_foreign(state, isolation):
        return decision
    reason = "isolated builds made the former tree, and its programs would run on the host"
    return Decision(use=TreeUse.RECOMPILE, reasons=(reason,))


def _is_in_cache(plan: Plan, decision: Decision) -> bool:
    """Return whether the object cache got the objects of the former compile, and was not deleted since."""
    if isinstance(plan.isolation, IsolationError) or not decision.objects_in:
        return False
    return decision.objects_in == object_cache.read_identity(plan.options, plan.isolation)


def _with_left_objects(plan: Plan, decision: Decision) -> Decision:
    """Return the decision with the objects that a staging in another output folder left in the object cache."""
    if decision.objects is not None or isinstance(plan.isolation, IsolationError):
        return decision
    left = read_left_staging(plan.options, plan.isolation)
    if left is None:
        return decision
    return tree_reuse.count_missing(decision, left, plan.staging)
