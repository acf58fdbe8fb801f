"""Finds a plan's packages and compiled tree in a store, by their keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from groundwork.errors import IntegrityError
from groundwork.progress import Notes
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan, PlanItem
from megabuild.store.server import Record, Store, StoreError, named_store


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Missing packages, and the missing tree, that a store has."""

    packages: Mapping[str, Record] = field(default_factory=dict)  #: records by file name
    staging: Record | None = None  #: the compiled tree of missing packages
    notes: tuple[str, ...] = ()  #: for the user

    @property
    def is_empty(self) -> bool:
        return not self.packages and self.staging is None


#: The answer without a store.
NOTHING_STORED = Stored()


def package_key(options: Options, item: PlanItem) -> str:
    """Return a package's key in a store: it depends on the package's inputs, not on time or machine."""
    return f"{_folder(options)}/packages/{item.fingerprint}/{item.file_name}"


def staging_key(plan: Plan) -> str:
    """Return the store's key for the compiled tree that a plan's packages are built from."""
    return f"{_folder(plan.options)}/staging/{plan.staging.digest}"


def _folder(options: Options) -> str:
    return options.run_name if options.own else f"{options.root.resolve().name}/{options.run_name}"


def ask_store(
    plan: Plan, existing: Collection[str], environ: Mapping[str, str], report: Notes, *, with_tree: bool
) -> Stored:
    """Return what the configured store has of the packages that do not exist, and ``with_tree`` of the tree.

    Raises UsageError: The store's address is invalid.
    """
    store = named_store(environ)
    if store is None:
        return NOTHING_STORED
    report(f"asking the store {store.shown}")
    question = _Question(store)
    packages: dict[str, Record] = {}
    staging = None
    try:
        for item in plan.all_items:
            name = item.file_name
            record = None if name in existing else question.find(package_key(plan.options, item))
            if record is not None:
                packages[name] = record
        if with_tree:
            staging = question.find(staging_key(plan))
    except StoreError as error:
        question.notes.append(f"the store cannot be reached, so everything is built here: {error}")
    return Stored(packages=packages, staging=staging, notes=tuple(question.notes))


class _Question:
    """Looks keys up in a store; a damaged record is a note."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.notes: list[str] = []

    def find(self, key: str) -> Record | None:
        try:
            return self._store.find(key)
        except IntegrityError as error:
            self.notes.append(f"not fetched from the store: {error.message}")
            return None
