"""Fetches a plan's packages and tree from a store before the build, and uploads tested ones after it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path

from groundwork import channel_folder, files
from groundwork.errors import IntegrityError, MegabuildError
from groundwork.progress import Preparing
from megabuild.engine import archive, output_folder
from megabuild.plan import store_lookup, tree_reuse
from megabuild.plan.fingerprint import inherits
from megabuild.plan.plan import Plan, PlanItem, Stored
from megabuild.plan.planning import compare_with_disk
from megabuild.plan.tree_reuse import TreeUse
from megabuild.status.record import PackageState
from megabuild.status.status import Status, logger
from megabuild.store import published, tree_archive
from megabuild.store.server import Record, Store, StoreError, named_store

#: Name of a compiled tree while it is packed or unpacked.
_TREE = "libtorch.tar.zst"


def fetch(plan: Plan, environ: Mapping[str, str], status: Status) -> Plan:
    """Publish the store's packages and put its tree in place; return the plan of the missing packages.

    Damaged and missing files are built here instead.
    """
    store = named_store(environ)
    if store is None or plan.stored == Stored():
        return plan
    with files.scratch(channel_folder.own_folder(plan.options.state)) as aside:
        try:
            for item in plan.all_items:
                record = plan.stored.packages.get(item.package.file_name)
                if record is not None and item.package.file_name not in plan.existing:
                    _fetch_package(plan, item, record, store, aside, status)
            # compare again: packages whose download failed must be built
            missing = compare_with_disk(plan).missing
            if plan.stored.staging is not None and any(map(inherits, missing)):
                _fetch_tree(plan, plan.stored.staging, store, aside, status)
        except StoreError as error:
            logger.warning("store failed, so the rest is built here: %s", error)
    return compare_with_disk(replace(plan, stored=Stored()))


def _fetch_package(
    plan: Plan, item: PlanItem, record: Record, store: Store, aside: Path, status: Status
) -> None:
    name, package = item.package.file_name, item.package
    path = aside / package.subdir / name
    try:
        _follow(store.fetch(record, path), status, f"fetching {package.id.label}", record.size)
        published.publish(
            plan.options.packages,
            [archive.verify(package, path)],
            platform=plan.options.config.platform,
            fingerprints={name: item.fingerprint},
            seconds={},
        )
        status.set_packages([name], PackageState.PUBLISHED)
    except IntegrityError as error:
        logger.warning("%s: unusable in the store, so it is built here: %s", package.id.label, error.message)


def _fetch_tree(plan: Plan, record: Record, store: Store, aside: Path, status: Status) -> None:
    packed, unpacked = aside / _TREE, aside / "unpacked"
    try:
        _follow(store.fetch(record, packed), status, f"fetching the finished {plan.staged_name}", record.size)
        status.note(Preparing(what=f"unpacking the finished {plan.staged_name}"))
        tree_archive.unpack(packed, unpacked)
        packed.unlink()
        tree, out = plan.options.state / "tree", plan.options.state / "out"
        if tree_reuse.read(unpacked / "tree") != plan.staging:
            raise IntegrityError(
                f"{store.shown}: {plan.staged_name} has another key", "delete it from the store"
            )
        output_folder.drop_stagings(out)
        files.remove(tree)
        (unpacked / "tree").rename(tree)
        output_folder.take_stagings(unpacked / "stagings", out)
    except IntegrityError as error:
        logger.warning("%s: unusable in the store, so it is built here: %s", plan.staged_name, error.message)


def _follow(transfer: Iterable[int], status: Status, what: str, total: int) -> None:
    """Make a transfer, and show its bytes done so far."""
    for done in chain([0], transfer):
        status.note(Preparing(what=what, done=done, total=total, unit="bytes"))


def put(plan: Plan, environ: Mapping[str, str], status: Status) -> None:
    """Upload a plan's published packages and, if all are published, their tree, if the store takes uploads.

    An error of the store is only a warning: it does not fail the run.
    """
    store = named_store(environ)
    if store is None or not store.writes:
        return
    try:
        for item in plan.all_items:
            if item.package.file_name in plan.existing:
                (path,) = published.paths(plan.options.packages, [item.package.file_name])
                _put_file(
                    store, store_lookup.package_key(plan.options, item), path, item.package.id.label, status
                )
        finished = plan.stages and not plan.missing and plan.staging_decision.use is TreeUse.REUSE
        if finished and not _has_record(store, key := store_lookup.staging_key(plan)):
            what, state = f"the finished {plan.staged_name}", plan.options.state
            with files.scratch(state) as aside:
                status.note(Preparing(what=f"packing {what}"))
                stagings = output_folder.staging_caches(state / "out")
                folders = {f"stagings/{path.name}": path for path in stagings}
                tree_archive.pack({"tree": state / "tree", **folders}, aside / _TREE)
                _put_file(store, key, aside / _TREE, what, status)
    except (StoreError, MegabuildError) as error:
        why = error.message if isinstance(error, MegabuildError) else str(error)
        logger.warning("upload to the store is incomplete; the next run retries it: %s", why)


def _put_file(store: Store, key: str, path: Path, what: str, status: Status) -> None:
    if not _has_record(store, key):
        _follow(store.put(key, path), status, f"storing {what}", path.stat().st_size)


def _has_record(store: Store, key: str) -> bool:
    """Return whether a key has a valid record; an invalid one is replaced."""
    with contextlib.suppress(IntegrityError):
        return store.find(key) is not None
    return False
