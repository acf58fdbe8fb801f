"""Finds a plan's packages and compiled tree in a store, by their keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from groundwork.errors import IntegrityError
from megabuild.plan.fingerprint import inherits
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan, PlanItem, Stored
from megabuild.plan.tree_reuse import Decision
from megabuild.store.server import Record, StoreError, named_store

#: The only file in a staging's record.
TREE = "libtorch.tar.zst"
_FETCHED = Decision(decision="reuse", reasons=())


def package_key(options: Options, item: PlanItem) -> str:
    """Return a package's key in a store: it depends on the package's inputs, not on time or machine."""
    return f"{_folder(options)}/packages/{item.fingerprint}/{item.package.file_name}"


def staging_key(plan: Plan) -> str:
    """Return the store's key for the compiled tree that a plan's packages are built from."""
    return f"{_folder(plan.options)}/staging/{plan.staging.digest}"


def _folder(options: Options) -> str:
    return options.run_name if options.own else f"{options.root.resolve().name}/{options.run_name}"


def ask_store(
    plan: Plan, environ: Mapping[str, str], report: Callable[[str], None]
) -> tuple[Stored, list[str]]:
    """Return the missing packages that the configured store has, and notes for the plan.

    Raises UsageError: The store's address is invalid.
    """
    store = named_store(environ)
    if store is None:
        return Stored(), []
    report(f"asking the store {store.shown}")
    notes: list[str] = []

    def find(key: str) -> Record | None:
        try:
            return store.find(key)
        except IntegrityError as error:
            notes.append(f"not fetched from the store: {error.message}")
            return None

    stored = Stored(address=store.shown)
    try:
        records = {
            item.package.file_name: record
            for item in plan.all_items
            if not item.exists and (record := find(package_key(plan.options, item)))
        }
        stored = replace(stored, packages=records)
        if any(map(inherits, plan.missing)) and plan.staging_decision.decision != "reuse":
            stored = replace(stored, staging=find(staging_key(plan)))
    except StoreError as error:
        notes.append(f"the store cannot be reached, so everything is built here: {error}")
    return stored, notes


def when_fetched(plan: Plan) -> Plan:
    """Return a plan as if all packages that the store has were fetched."""
    in_store = plan.stored
    left = plan.map_items(
        lambda item: replace(item, exists=item.exists or item.package.file_name in in_store.packages)
    )
    return replace(left, staging_decision=_FETCHED) if in_store.staging else left
