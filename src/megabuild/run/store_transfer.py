"""Fetches a plan's packages and tree from a store before the build, and uploads tested ones after it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from groundwork import channel_folder, files
from groundwork.errors import IntegrityError, MegabuildError
from groundwork.progress import preparing
from megabuild.engine import archive, output_folder
from megabuild.plan import tree_reuse
from megabuild.plan.plan import Plan, PlanItem
from megabuild.plan.tree_reuse import TreeUse
from megabuild.run import store_lookup
from megabuild.run.progress import Progress
from megabuild.status.record import PackageState
from megabuild.status.status import Status, logger
from megabuild.store import published, tree_archive
from megabuild.store.server import Record, Store, StoreError, named_store

#: Name of a compiled tree while it is packed or unpacked.
_TREE = "libtorch.tar.zst"


def fetch(progress: Progress, environ: Mapping[str, str], status: Status) -> Progress:
    """Publish the store's packages and put its tree in place; return the progress after that.

    Damaged and missing files are built here instead.
    """
    plan = progress.plan
    stored = progress.stored
    store = named_store(environ)
    if store is None or stored.is_empty:
        return progress
    with files.scratch(channel_folder.own_folder(plan.options.state)) as aside:
        try:
            for item in plan.all_items:
                record = stored.packages.get(item.file_name)
                if record is not None and item.file_name not in progress.existing:
                    _fetch_package(progress, item, record, store, aside, status)
            # read again: packages whose download failed must be built
            if stored.staging is not None and Progress.read(plan).needs_staging:
                _fetch_tree(plan, stored.staging, store, aside, status)
        except StoreError as error:
            logger.warning("store failed, so the rest is built here: %s", error)
    return Progress.read(plan)


def _fetch_package(
    progress: Progress, item: PlanItem, record: Record, store: Store, aside: Path, status: Status
) -> None:
    options = progress.plan.options
    package = item.package
    name = package.file_name
    path = aside / package.subdir / name
    try:
        _follow(store.fetch(record, path), status, f"fetching {package.id.label}", record.size)
        published.publish(
            options.packages,
            [archive.verify(package, path)],
            platform=options.config.platform,
            fingerprints={name: item.fingerprint},
            seconds={},
            awaited=progress.awaited_tests,  # the run may end before these tests begin
        )
        status.set_packages([name], PackageState.PUBLISHED)
    except IntegrityError as error:
        logger.warning("%s: unusable in the store, so it is built here: %s", package.id.label, error.message)


def _fetch_tree(plan: Plan, record: Record, store: Store, aside: Path, status: Status) -> None:
    packed = aside / _TREE
    unpacked = aside / "unpacked"
    try:
        _follow(store.fetch(record, packed), status, f"fetching the finished {plan.staged_name}", record.size)
        with preparing(status.note, f"unpacking the finished {plan.staged_name}"):
            tree_archive.unpack(packed, unpacked)
        packed.unlink()
        tree = plan.options.state / "tree"
        out = plan.options.state / "out"
        if tree_reuse.read(unpacked / "tree") != plan.staging:
            raise IntegrityError(
                f"{store.shown}: {plan.staged_name} has another key", "delete it from the store"
            )
        output_folder.drop_stagings(out)
        files.remove(tree)
        tree_reuse.note_fetched(out)
        (unpacked / "tree").rename(tree)
        output_folder.take_stagings(unpacked / "stagings", out)
    except IntegrityError as error:
        logger.warning("%s: unusable in the store, so it is built here: %s", plan.staged_name, error.message)


def _follow(transfer: Iterable[int], status: Status, what: str, total: int) -> None:
    """Make a transfer, and show its bytes done so far."""
    with preparing(status.note, what, total=total, unit="bytes") as advance:
        for done in transfer:
            advance(done)


def put(plan: Plan, environ: Mapping[str, str], status: Status) -> None:
    """Upload the plan's packages that passed all tests and, if all did, their tree, if the store takes uploads.

    PyTorch's own tests count, too: a run elsewhere, without them, would fetch the package without a word.

    An error, also of the disk while the tree is packed, or of the records, is only a warning: it does not fail the run,
    nor hide why the run failed.
    """
    store = named_store(environ)
    if store is None or not store.writes:
        return
    try:
        progress = Progress.read(plan)
        for item in plan.all_items:
            if item.file_name in progress.passed:
                (path,) = published.paths(plan.options.packages, [item.file_name])
                key = store_lookup.package_key(plan.options, item)
                _put_file(store, key, path, item.package.id.label, status)
        has_passed = progress.passed == progress.existing and not progress.missing
        if progress.tree.use is TreeUse.REUSE and has_passed:
            _put_tree(plan, store, status)
    except (StoreError, MegabuildError, OSError) as error:
        why = error.message if isinstance(error, MegabuildError) else str(error)
        logger.warning("upload to the store is incomplete; the next run retries it: %s", why)


def _put_tree(plan: Plan, store: Store, status: Status) -> None:
    """Pack and upload the finished tree, unless the store has it."""
    key = store_lookup.staging_key(plan)
    if _has_record(store, key):
        return
    what = f"the finished {plan.staged_name}"
    state = plan.options.state
    with files.scratch(state) as aside:
        folders = {"tree": state / "tree"}
        for path in output_folder.staging_caches(state / "out"):
            folders[f"stagings/{path.name}"] = path
        with preparing(status.note, f"packing {what}"):
            tree_archive.pack(folders, aside / _TREE)
        _put_file(store, key, aside / _TREE, what, status)


def _put_file(store: Store, key: str, path: Path, what: str, status: Status) -> None:
    if not _has_record(store, key):
        _follow(store.put(key, path), status, f"storing {what}", path.stat().st_size)


def _has_record(store: Store, key: str) -> bool:
    """Return whether a key has a valid record; an invalid one is replaced."""
    with contextlib.suppress(IntegrityError):
        return store.find(key) is not None
    return False
