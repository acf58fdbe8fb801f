"""Fetching what a store has of a plan before anything is built, and storing what was built and has passed its tests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

from groundwork import channel_folder, files
from groundwork.errors import IntegrityError, MegabuildError
from groundwork.progress import Preparing
from megabuild.engine import archive, output_folder
from megabuild.plan import published, stored, tree_reuse
from megabuild.plan.fingerprint import inherits
from megabuild.plan.plan import Plan, PlanItem, Stored
from megabuild.plan.planning import compare_with_disk
from megabuild.status.status import Status, logger
from megabuild.store import tree_archive
from megabuild.store.server import Record, Store, StoreError, named_store


def fetch(plan: Plan, environ: Mapping[str, str], status: Status) -> bool:
    """Publish the packages that the store has, and put the finished tree where it has been compiled otherwise.

    A damaged or missing file is built here: that costs time only. Returns whether anything came.
    """
    store = named_store(environ)
    if store is None or plan.stored == Stored(address=plan.stored.address):
        return False
    came = False
    with files.scratch(channel_folder.own_folder(plan.options.state)) as aside:
        try:
            for item in plan.all_items:
                record = plan.stored.packages.get(item.package.file_name)
                if record is not None and not item.exists:
                    came |= _fetch_package(plan, item, record, store, aside, status)
            # not what was planned: a package that the store had in name only has to be built
            missing = compare_with_disk(plan).missing
            if plan.stored.staging is not None and any(map(inherits, missing)):
                came |= _fetch_tree(plan, plan.stored.staging, store, aside, status)
        except StoreError as error:
            logger.warning("the store is left alone, and the rest is built here: %s", error)
    return came


def _fetch_package(
    plan: Plan, item: PlanItem, record: Record, store: Store, aside: Path, status: Status
) -> bool:
    name, package = item.package.file_name, item.package
    path = aside / package.subdir / name
    try:
        _fetch_file(store, record, path, f"fetching {package.id.label}", status)
        published.publish(
            plan.options.packages,
            [archive.verify(package, path)],
            platform=plan.options.config.platform,
            fingerprints={name: item.fingerprint},
            seconds={},
        )
    except IntegrityError as error:
        logger.warning("%s is built here, and not taken from the store: %s", package.id.label, error.message)
        return False
    status.set_packages([package.id.label], "published")
    return True


def _fetch_tree(plan: Plan, record: Record, store: Store, aside: Path, status: Status) -> bool:
    packed, unpacked = aside / stored.TREE, aside / "unpacked"
    try:
        _fetch_file(store, record, packed, f"fetching the finished {plan.staged_name}", status)
        status.note(Preparing(what=f"unpacking the finished {plan.staged_name}"))
        tree_archive.unpack(packed, unpacked)
        packed.unlink()
        tree, out = plan.options.state / "tree", plan.options.state / "out"
        if tree_reuse.read(unpacked / "tree") != plan.staging:
            raise IntegrityError(f"{store.shown}: the tree is not what it is named after", "remove it there")
        output_folder.drop_stagings(out)
        tree_reuse.replace_tree(unpacked / "tree", tree, plan.staging_decision)
        output_folder.take_stagings(unpacked / "stagings", out)
    except IntegrityError as error:
        logger.warning("%s is built here, and not taken from the store: %s", plan.staged_name, error.message)
        return False
    return True


def _fetch_file(store: Store, record: Record, target: Path, what: str, status: Status) -> None:
    file = record.files.get(target.name)
    if file is None:
        raise IntegrityError(f"{store.shown}: {target.name} is not in its record", "remove the record there")
    store.fetch(file, target, _follow(status, what, file.size))


def _follow(status: Status, what: str, total: int) -> Callable[[int], None]:
    """Return what takes the bytes that are done, and begin with none."""

    def take(done: int) -> None:
        status.note(Preparing(what=what, done=done, total=total, unit="bytes"))

    take(0)
    return take


def put(plan: Plan, environ: Mapping[str, str], status: Status) -> None:
    """Store what is published of a plan and, once that is all of it, the tree it was built from, where that is wanted.

    A store that takes nothing costs the others their time, not this run its result.
    """
    store = named_store(environ)
    if store is None or not store.writes:
        return
    try:
        for item in plan.all_items:
            if item.exists:
                (path,) = published.paths(plan.options.packages, [item.package.file_name])
                _put_file(store, stored.package_key(plan.options, item), path, item.package.id.label, status)
        finished = plan.stages and not plan.missing and plan.staging_decision.decision == "reuse"
        if finished and not _has_record(store, key := stored.staging_key(plan)):
            what, state = f"the finished {plan.staged_name}", plan.options.state
            with files.scratch(state) as aside:
                status.note(Preparing(what=f"packing {what}"))
                stagings = output_folder.staging_caches(state / "out")
                folders = {f"stagings/{path.name}": path for path in stagings}
                tree_archive.pack({"tree": state / "tree", **folders}, aside / stored.TREE)
                _put_file(store, key, aside / stored.TREE, what, status)
    except (StoreError, MegabuildError) as error:
        why = error.message if isinstance(error, MegabuildError) else str(error)
        logger.warning("not everything was stored; the next run tries again: %s", why)


def _put_file(store: Store, key: str, path: Path, what: str, status: Status) -> None:
    if not _has_record(store, key):
        store.put(key, {path.name: path}, _follow(status, f"storing {what}", path.stat().st_size))


def _has_record(store: Store, key: str) -> bool:
    """Return whether something that can be used is stored under a key; anything else is replaced."""
    with contextlib.suppress(IntegrityError):
        return store.find(key) is not None
    return False
