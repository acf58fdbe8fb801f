"""Fetching what a store has of a plan before anything is built, and storing what was built and has passed its tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
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
from megabuild.store.server import Store, StoredFile, StoreError, named_store


def fetch(plan: Plan, environ: Mapping[str, str], status: Status) -> bool:
    """Publish the packages that the store has, and put the finished tree where it has been compiled otherwise.

    What cannot be had, or is not what it should be, is built: that costs time only. Returns whether anything came.
    """
    store = named_store(environ)
    if store is None or plan.stored == Stored(address=plan.stored.address):
        return False
    came = False
    state = channel_folder.own_folder(plan.options.state)
    with files.scratch(state) as aside:
        try:
            for item in plan.all_items:
                record = plan.stored.packages.get(item.package.file_name)
                if record is not None and not item.exists:
                    came |= _attempt(
                        item.package.id.label, partial(_fetch_package, plan, item, store, aside, status)
                    )
            # not what was planned: a package that the store had in name only has to be built
            left = compare_with_disk(plan).missing
            if plan.stored.staging is not None and any(map(inherits, left)):
                came |= _attempt(plan.staged_name, partial(_fetch_staging, plan, store, aside, status))
        except StoreError as error:
            logger.warning("the store is left alone, and the rest is built here: %s", error)
    return came


def _attempt(what: str, do: Callable[[], None]) -> bool:
    try:
        do()
    except IntegrityError as error:
        logger.warning("%s is built here, and not taken from the store: %s", what, error.message)
        return False
    return True


def _fetch_package(plan: Plan, item: PlanItem, store: Store, aside: Path, status: Status) -> None:
    name, package = item.package.file_name, item.package
    path = aside / package.subdir / name
    _fetch_file(
        store, plan.stored.packages[name].files.get(name), path, f"fetching {package.id.label}", status
    )
    published.publish(
        plan.options.packages,
        [archive.verify(package, path)],
        platform=plan.options.config.platform,
        fingerprints={name: item.fingerprint},
        seconds={},
    )
    status.set_packages([package.id.label], "published")


def _fetch_staging(plan: Plan, store: Store, aside: Path, status: Status) -> None:
    record = plan.stored.staging
    assert record is not None
    packed, unpacked = aside / stored.TREE, aside / "unpacked"
    _fetch_file(
        store, record.files.get(stored.TREE), packed, f"fetching the finished {plan.staged_name}", status
    )
    status.note(Preparing(what=f"unpacking the finished {plan.staged_name}"))
    tree_archive.unpack(packed, unpacked)
    packed.unlink()
    tree, out = plan.options.state / "tree", plan.options.state / "out"
    if tree_reuse.read(unpacked / "tree") != plan.staging:
        raise IntegrityError(f"{store.shown}: the tree is not what it is named after", "remove it there")
    output_folder.drop_stagings(out)
    tree_reuse.replace_tree(unpacked / "tree", tree, plan.staging_decision)
    output_folder.take_stagings(unpacked / "stagings", out)


def _fetch_file(store: Store, file: StoredFile | None, target: Path, what: str, status: Status) -> None:
    if file is None:
        raise IntegrityError(f"{store.shown}: {target.name} is not in its record", "remove the record there")
    status.note(Preparing(what=what, total=file.size, unit="bytes"))
    store.fetch(
        file, target, lambda done: status.note(Preparing(what=what, done=done, total=file.size, unit="bytes"))
    )


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
                _put(
                    store,
                    stored.package_key(plan.options, item),
                    {path.name: path},
                    item.package.id.label,
                    status,
                )
        if plan.stages and not plan.missing and plan.staging_decision.decision == "reuse":
            _put_tree(plan, store, status)
    except (StoreError, MegabuildError) as error:
        why = error.message if isinstance(error, MegabuildError) else str(error)
        logger.warning("not everything was stored; the next run tries again: %s", why)


def _put_tree(plan: Plan, store: Store, status: Status) -> None:
    key, state = stored.staging_key(plan), plan.options.state
    if _has_record(store, key):
        return
    with files.scratch(state) as aside:
        packed = aside / stored.TREE
        status.note(Preparing(what=f"packing the finished {plan.staged_name}"))
        stagings = output_folder.staging_caches(state / "out")
        folders = {f"stagings/{path.name}": path for path in stagings}
        tree_archive.pack({"tree": state / "tree", **folders}, packed)
        _put(store, key, {packed.name: packed}, f"the finished {plan.staged_name}", status)


def _put(store: Store, key: str, content: Mapping[str, Path], what: str, status: Status) -> None:
    if _has_record(store, key):
        return
    total, said = sum(path.stat().st_size for path in content.values()), f"storing {what}"
    status.note(Preparing(what=said, total=total, unit="bytes"))
    store.put(
        key, content, lambda done: status.note(Preparing(what=said, done=done, total=total, unit="bytes"))
    )


def _has_record(store: Store, key: str) -> bool:
    """Return whether something that can be used is stored under a key; anything else is replaced."""
    try:
        return store.find(key) is not None
    except IntegrityError:
        return False
