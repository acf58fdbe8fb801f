"""Finds a plan's packages and compiled tree in a store, by their keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from groundwork.errors import IntegrityError
from groundwork.progress import Notes
from megabuild.plan.fingerprint import inherits
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan, PlanItem, Stored
from megabuild.plan.tree_reuse import Decision, TreeUse
from megabuild.store.server import Record, StoreError, named_store

_FETCHED = Decision(use=TreeUse.REUSE, reasons=())


def package_key(options: Options, item: PlanItem) -> str:
    """Return a package's key in a store: it depends on the package's inputs, not on time or machine."""
    return f"{_folder(options)}/packages/{item.fingerprint}/{item.package.file_name}"


def staging_key(plan: Plan) -> str:
    """Return the store's key for the compiled tree that a plan's packages are built from."""
    return f"{_folder(plan.options)}/staging/{plan.staging.digest}"


def _folder(options: Options) -> str:
    return options.run_name if options.own else f"{options.root.resolve().name}/{options.run_name}"


def ask_store(plan: Plan, environ: Mapping[str, str], report: Notes) -> tuple[Stored, list[str]]:
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

    packages: dict[str, Record] = {}
    staging = None
    try:
        for item in plan.all_items:
            name = item.package.file_name
            if name not in plan.existing and (record := find(package_key(plan.options, item))):
                packages[name] = record
        if any(map(inherits, plan.missing)) and plan.staging_decision.use is not TreeUse.REUSE:
            staging = find(staging_key(plan))
    except StoreError as error:
        notes.append(f"the store cannot be reached, so everything is built here: {error}")
    return Stored(packages=packages, staging=staging), notes


def when_fetched(plan: Plan) -> Plan:
    """Return a plan as if everything that the store has were fetched."""
    decision = _FETCHED if plan.stored.staging else plan.staging_decision
    return replace(plan, existing=plan.existing | plan.stored.packages.keys(), staging_decision=decision)
