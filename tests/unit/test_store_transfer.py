"""What a run uploads to a store: finished packages, and the tree only if it is finished, too."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from small_files import write
from stop_at_write import every_stop
from tiny import kept_sentences, make_package

from groundwork.errors import BuildError, OutOfSpaceError
from megabuild.engine import archive, output_folder
from megabuild.plan import tree_reuse
from megabuild.plan.fingerprint import Fingerprint
from megabuild.plan.tree_reuse import Decision, TreeUse
from megabuild.run import store_lookup, store_transfer
from megabuild.run.progress import Progress
from megabuild.status.record import PackageState
from megabuild.status.status import Status
from megabuild.store import published, server, tree_archive


class ProgressOfItems(SimpleNamespace):
    """A progress by its attributes alone, which no plan derives."""

    passed = Progress.passed


@pytest.mark.parametrize(
    ("decision", "missing", "untested", "awaiting", "uploaded"),
    [
        ("reuse", (), (), (), True),
        ("reuse", ("pytorch",), (), (), False),
        ("reuse", (), ("pytorch",), (), False),
        ("reuse", (), (), ("pytorch",), False),
        ("resume", (), (), (), False),
        ("recompile", (), (), (), False),
        ("fresh", (), (), (), False),
        ("none", (), (), (), False),
    ],
)
def test_a_half_compiled_or_untested_tree_is_not_uploaded(
    decision: str, missing: tuple[str, ...], untested: tuple[str, ...], awaiting: tuple[str, ...],
    uploaded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    put: list[str] = []
    monkeypatch.setattr(store_transfer, "_put_file", lambda store, key, *_: put.append(key))
    monkeypatch.setattr(store_lookup, "staging_key", lambda plan: "the tree")
    monkeypatch.setattr(tree_archive, "pack", lambda folders, target: None)
    state = tmp_path / "state"
    (state / "out").mkdir(parents=True)
    options = SimpleNamespace(state=state, packages=tmp_path / "packages")
    plan = SimpleNamespace(all_items=(), staged_name="libtorch", options=options)
    tree = Decision(use=TreeUse(decision), reasons=())
    progress = ProgressOfItems(
        existing=frozenset(untested + awaiting),
        untested=frozenset(untested),
        awaiting=frozenset(awaiting),
        missing=missing,
        tree=tree,
    )
    monkeypatch.setattr(Progress, "read", lambda plan: progress)
    environ = {server.STORE: str(tmp_path / "store"), server.WRITES: "1"}
    status = Status("x", state)
    store_transfer.put(cast(Any, plan), environ, status)
    assert put == ["the tree"] * uploaded
    assert status.record.activities == []


def finished(state: Path, name: str, fingerprint: Fingerprint) -> None:
    """A finished tree with its staging; both have a file of this name."""
    write(state / "tree/build" / name)
    tree_reuse.write(state / "tree", fingerprint)
    write(state / "out/build_cache/staging_1/prefix" / name)
    write(state / "out/build_cache/staging_1/metadata.json", "{}")
    output_folder.seal_stagings(state / "out")


def test_a_tree_is_stored_with_each_of_its_stagings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another feedstock's recipe may have several."""
    state = tmp_path / "state"
    finished(state, "a", Fingerprint())
    write(state / "out/build_cache/staging_2/metadata.json", "{}")
    output_folder.seal_stagings(state / "out")
    packed: list[tuple[object, Path]] = []
    put: list[list[Path]] = []
    monkeypatch.setattr(tree_archive, "pack", lambda *words: packed.append(words))
    monkeypatch.setattr(
        store_transfer, "_put_file", lambda _, key, path, *__: put.append([path, *(one[1] for one in packed)])
    )
    monkeypatch.setattr(store_lookup, "staging_key", lambda _: "key")
    plan = SimpleNamespace(staged_name="libtorch", options=SimpleNamespace(state=state))
    store = server.Store(str(tmp_path / "store"), writes=True)
    store_transfer._put_tree(cast(Any, plan), store, Status("x", state))
    stagings = {f"stagings/{name}": state / "out/build_cache" / name for name in ("staging_1", "staging_2")}
    ((folders, path),) = packed
    assert folders == {"tree": state / "tree", **stagings}
    assert put == [[path, path]], "packed before it is uploaded"


def fetched(
    folder: Path, made: Fingerprint, monkeypatch: pytest.MonkeyPatch, *, wanted: Fingerprint
) -> Callable[[Path], None]:
    """Store a finished tree, and return a function that fetches it into a state folder for a plan."""
    finished(folder / "other", "new", made)
    stagings = output_folder.staging_caches(folder / "other/out")
    folders = {f"stagings/{path.name}": path for path in stagings}
    tree_archive.pack({"tree": folder / "other/tree", **folders}, folder / "packed")
    store = server.Store(str(folder / "store"), writes=True)
    for _ in store.put("key", folder / "packed"):
        pass
    stored = store_lookup.Stored(staging=store.find("key"))
    monkeypatch.setattr(Progress, "read", lambda plan: SimpleNamespace(needs_staging=True))

    def fetch(state: Path) -> None:
        options = SimpleNamespace(state=state)
        plan = SimpleNamespace(all_items=(), staged_name="libtorch", options=options, staging=wanted)
        progress = cast(
            Any, SimpleNamespace(plan=plan, stored=stored, existing=frozenset(), awaited_tests={})
        )
        store_transfer.fetch(progress, {server.STORE: store.address}, Status("x", state))

    return fetch


def test_a_tree_of_other_inputs_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    former, wanted = Fingerprint(source={"recipe": "1"}), Fingerprint(source={"recipe": "2"})
    finished(tmp_path / "here", "former", former)
    fetch = fetched(tmp_path, Fingerprint(source={"recipe": "3"}), monkeypatch, wanted=wanted)
    with kept_sentences() as said:
        fetch(tmp_path / "here")
    warned = [record.getMessage() for record in said if record.levelno == logging.WARNING]
    assert ["so it is built here" in text and "has another key" in text for text in warned] == [True]
    assert tree_reuse.read(tmp_path / "here/tree") == former
    assert (tmp_path / "here/out/build_cache/staging_1/prefix/former").exists()


def test_no_object_cache_has_the_objects_of_a_tree_that_was_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "here"
    finished(state, "former", Fingerprint(source={"recipe": "1"}))
    write(state / tree_reuse._OBJECTS_IN, "the cache of the former tree")
    new = Fingerprint(source={"recipe": "2"})
    fetched(tmp_path, new, monkeypatch, wanted=new)(state)
    last = tree_reuse.read_last_staging(state / "tree", state / "out")
    assert last is not None
    assert (last.fingerprint, last.objects_in) == (new, "")


def test_a_tree_that_no_missing_package_needs_is_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has gigabytes, and would replace the one that is here."""
    former, new = Fingerprint(source={"recipe": "1"}), Fingerprint(source={"recipe": "2"})
    finished(tmp_path / "here", "former", former)
    fetch = fetched(tmp_path, new, monkeypatch, wanted=new)
    monkeypatch.setattr(Progress, "read", lambda plan: SimpleNamespace(needs_staging=False))
    fetch(tmp_path / "here")
    assert tree_reuse.read(tmp_path / "here/tree") == former


def test_a_tree_that_is_being_fetched_never_has_another_staging(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill at any write, the next run counts a staging as finished only if all of it was fetched."""
    former, new = Fingerprint(source={"recipe": "1"}), Fingerprint(source={"recipe": "2"})
    finished(tmp_path / "here", "former", former)
    write(tmp_path / "here" / tree_reuse._OBJECTS_IN, "the object cache")
    fetch = fetched(tmp_path, new, monkeypatch, wanted=new)
    for state in every_stop(tmp_path / "here", fetch):
        if tree_reuse.read(state / "tree") == new:
            assert not tree_reuse._read_objects_in(state / "out"), "no object cache here has its objects"
        for fingerprint, name in ((former, "former"), (new, "new")):
            if tree_reuse.decide(state / "tree", state / "out", fingerprint).use is TreeUse.REUSE:
                assert (state / "tree/build" / name).exists()
                assert (state / "out/build_cache/staging_1/prefix" / name).exists()
        fetch(state)
        assert tree_reuse.decide(state / "tree", state / "out", new).use is TreeUse.REUSE
        assert (state / "out/build_cache/staging_1/prefix/new").exists()


def packages_of(folder: Path) -> list[Any]:
    """Three items of a plan, with their built packages."""
    items = []
    for name in ("a", "b", "c"):
        path = make_package(folder / "linux-64", name, "1", "0")
        package = SimpleNamespace(
            id=archive.read(path).package, file_name=path.name, subdir="linux-64", python=None
        )
        items.append(SimpleNamespace(file_name=path.name, package=package, fingerprint=f"f{name}"))
    return items


def transfer_of(folder: Path, items: list[Any], **progress: Any) -> Any:
    """The progress of a plan with these items."""
    config = SimpleNamespace(platform="linux-64")
    options = SimpleNamespace(state=folder / "state", packages=folder / "packages", config=config,
                              run_name="x", own=True)  # fmt: skip
    plan = SimpleNamespace(all_items=items, options=options, staged_name="libtorch")
    tree = Decision(use=TreeUse.NONE, reasons=())
    return ProgressOfItems(
        plan=plan,
        needs_staging=False,
        missing=(),
        tree=tree,
        untested=frozenset(),
        awaiting=frozenset(),
        awaited_tests={},
        **progress,
    )


@pytest.mark.parametrize("damaged", [(), (0,), (1,), (2,), (0, 2)], ids=str)
@pytest.mark.parametrize("damage", ["content", "another package"])
def test_a_damaged_package_of_a_store_is_built_here_and_the_others_are_fetched(
    damage: str, damaged: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = packages_of(tmp_path / "made")
    store = server.Store(str(tmp_path / "store"), writes=True)
    records = {}
    for number, item in enumerate(items):
        source = tmp_path / "made/linux-64" / item.file_name
        if number in damaged and damage == "another package":
            source = make_package(tmp_path / "other/linux-64", item.package.id.name, "2", "0")
        for _ in store.put(item.file_name, source):
            pass
        records[item.file_name] = store.find(item.file_name)
        if number in damaged and damage == "content":
            part = records[item.file_name].parts[0]  # type: ignore[union-attr]
            (path,) = (path for path in (tmp_path / "store").rglob("*") if part[2:] in path.name)
            path.write_bytes(b"x" * path.stat().st_size)
    stored = store_lookup.Stored(packages=cast(Any, records))
    progress = transfer_of(tmp_path, items, existing=frozenset(), stored=stored)
    monkeypatch.setattr(Progress, "read", lambda plan: progress)
    status = Status("x", tmp_path / "state")
    store_transfer.fetch(progress, {server.STORE: store.address}, status)
    found = published.records(tmp_path / "packages")
    whole = [item for number, item in enumerate(items) if number not in damaged]
    assert status.record.packages == {item.file_name: PackageState.PUBLISHED for item in whole}
    assert {name: record.fingerprint for name, record in found.items()} == {
        item.file_name: item.fingerprint for item in whole
    }
    assert not list((tmp_path / "state").glob("*/*.conda"))


@pytest.mark.parametrize("kind", ["untested", "awaiting"])
def test_packages_whose_tests_failed_or_never_ran_are_not_uploaded(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test of their own, or PyTorch's own tests: another machine would fetch the package without a word."""
    items = packages_of(tmp_path / "made")
    names = [item.file_name for item in items]
    progress = transfer_of(tmp_path, items, existing=frozenset(names[:2]))
    setattr(progress, kind, frozenset(names[:1]))
    monkeypatch.setattr(Progress, "read", lambda plan: progress)
    monkeypatch.setattr(
        published, "paths", lambda _, names: [tmp_path / "made/linux-64" / name for name in names]
    )
    put: list[str] = []
    monkeypatch.setattr(store_transfer, "_put_file", lambda store, key, path, *_: put.append(path.name))
    environ = {server.STORE: str(tmp_path / "store"), server.WRITES: "1"}
    store_transfer.put(progress.plan, environ, Status("x", tmp_path / "state"))
    assert put == names[1:2]


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("error", [server.StoreError, OutOfSpaceError])
def test_packages_after_a_store_s_failure_are_built_here_and_other_errors_end_the_run(
    error: type[Exception], failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = packages_of(tmp_path / "made")
    store = server.Store(str(tmp_path / "store"), writes=True)
    records = {}
    for item in items:
        for _ in store.put(item.file_name, tmp_path / "made/linux-64" / item.file_name):
            pass
        records[item.file_name] = store.find(item.file_name)
    real = server.Store.fetch

    def fetch(store: server.Store, record: server.Record, target: Path) -> Iterator[int]:
        if record.key == items[failing].file_name:
            raise error("the third answer")
        return real(store, record, target)

    monkeypatch.setattr(server.Store, "fetch", fetch)
    progress = transfer_of(
        tmp_path, items, existing=frozenset(), stored=store_lookup.Stored(packages=cast(Any, records))
    )
    monkeypatch.setattr(Progress, "read", lambda plan: progress)
    with (
        kept_sentences() as said,
        nullcontext() if error is server.StoreError else pytest.raises(error),
    ):
        store_transfer.fetch(progress, {server.STORE: store.address}, Status("x", tmp_path / "state"))
    warned = ["the third answer" in one.getMessage() for one in said if one.levelno == logging.WARNING]
    assert warned == [True] * (error is server.StoreError)
    assert list(published.records(tmp_path / "packages")) == [item.file_name for item in items[:failing]]


def test_a_package_that_another_run_has_published_meanwhile_is_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store was asked before this run had its lock."""
    names = ["a.conda", "b.conda", "c.conda"]
    items: list[Any] = [SimpleNamespace(file_name=name) for name in names]
    fetched_names: list[str] = []
    monkeypatch.setattr(
        store_transfer, "_fetch_package", lambda _, item, *__: fetched_names.append(item.file_name)
    )
    stored = store_lookup.Stored(packages=dict.fromkeys(names, cast(Any, "a record")))
    progress = transfer_of(tmp_path, items, existing=frozenset(names[1:2]), stored=stored)
    monkeypatch.setattr(Progress, "read", lambda plan: progress)
    store_transfer.fetch(progress, {server.STORE: str(tmp_path)}, Status("x", tmp_path / "state"))
    assert fetched_names == [names[0], names[2]]


@pytest.mark.parametrize("setting", ["", "0", None])
def test_a_store_that_takes_no_uploads_is_only_read(
    setting: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = transfer_of(tmp_path, [])
    environ = {server.STORE: str(tmp_path / "store")}
    if setting is not None:
        environ[server.WRITES] = setting
    monkeypatch.setattr(Progress, "read", lambda _: pytest.fail("nothing is to be uploaded"))
    store_transfer.put(progress.plan, environ, Status("x", tmp_path / "state"))
    assert not (tmp_path / "store").exists()


def asked_store(folder: Path, items: list[Any]) -> Any:
    """A plan with these items, and a store with their packages and its tree."""
    plan = transfer_of(folder, items).plan
    plan.staging = SimpleNamespace(digest="tree")
    store = server.Store(str(folder / "store"), writes=True)
    keys = [store_lookup.package_key(plan.options, item) for item in items]
    for key in (*keys, store_lookup.staging_key(plan)):
        for _ in store.put(key, write(folder / "file", key)):
            pass
    return plan


def test_a_plan_asks_the_store_for_missing_packages_and_for_the_tree_if_it_needs_one(tmp_path: Path) -> None:
    items = packages_of(tmp_path / "made")
    plan = asked_store(tmp_path, items)
    environ = {server.STORE: str(tmp_path / "store")}
    existing = {items[0].file_name}
    said: list[object] = []
    stored = store_lookup.ask_store(plan, existing, environ, said.append, with_tree=True)
    assert list(stored.packages) == [item.file_name for item in items[1:]]
    assert (stored.staging is not None, stored.notes) == (True, ())
    assert said == [f"asking the store {tmp_path / 'store'}"]
    assert store_lookup.ask_store(plan, existing, environ, said.append, with_tree=False).staging is None
    assert store_lookup.ask_store(plan, existing, {}, said.append, with_tree=True).is_empty
    assert len(said) == 2, "a run without a store asks none"


@pytest.mark.parametrize("failing", [1, 2, 4])
def test_a_store_that_fails_is_named_in_the_plan_with_all_that_it_has_said_before(
    failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first package, at another one, at the tree: the run builds the rest, and the user learns why."""
    items = packages_of(tmp_path / "made")
    plan = asked_store(tmp_path, items)
    real = server.Store.find
    asked: list[str] = []

    def find(store: server.Store, key: str) -> server.Record | None:
        asked.append(key)
        if len(asked) == failing:
            raise server.StoreError("no answer within 10 s")
        return real(store, key)

    monkeypatch.setattr(server.Store, "find", find)
    environ = {server.STORE: str(tmp_path / "store")}
    stored = store_lookup.ask_store(plan, (), environ, lambda _: None, with_tree=True)
    assert list(stored.packages) == [item.file_name for item in items[: failing - 1]]
    assert stored.staging is None
    (note,) = stored.notes
    assert note == "the store cannot be reached, so everything is built here: no answer within 10 s"


def test_a_store_that_is_missing_is_named_in_the_plan(tmp_path: Path) -> None:
    plan = transfer_of(tmp_path, packages_of(tmp_path / "made")).plan
    stored = store_lookup.ask_store(
        plan, (), {server.STORE: str(tmp_path / "store")}, lambda _: None, with_tree=False
    )
    assert stored.is_empty
    assert [str(tmp_path / "store") in note for note in stored.notes] == [True]


def test_a_damaged_record_of_a_store_is_named_in_the_plan_and_the_others_are_used(tmp_path: Path) -> None:
    items = packages_of(tmp_path / "made")
    plan = asked_store(tmp_path, items)
    key = store_lookup.package_key(plan.options, items[1])
    write(tmp_path / "store" / f"{key}.json", "{}")
    environ = {server.STORE: str(tmp_path / "store")}
    stored = store_lookup.ask_store(plan, (), environ, lambda _: None, with_tree=True)
    assert list(stored.packages) == [items[0].file_name, items[2].file_name]
    assert stored.staging is not None
    assert ["not fetched from the store: " in note for note in stored.notes] == [True]


@pytest.mark.parametrize(
    "error", [server.StoreError("full"), BuildError("full"), OSError(errno.ENOSPC, "full")], ids=repr
)
def test_an_upload_that_fails_leaves_no_record_and_is_only_a_warning(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packages are published; after a build that failed, its error is the run's."""
    items = packages_of(tmp_path / "made")
    fingerprints = {item.file_name: item.fingerprint for item in items}
    archives = [archive.read(path) for path in sorted((tmp_path / "made/linux-64").glob("*.conda"))]
    published.publish(
        tmp_path / "packages", archives, platform="linux-64", fingerprints=fingerprints, seconds={}
    )
    existing = frozenset(item.file_name for item in items[:2])
    progress = transfer_of(tmp_path, items, existing=existing, stored=store_lookup.NOTHING_STORED)
    progress.missing = ("c",)
    monkeypatch.setattr(Progress, "read", lambda plan: progress)
    environ = {server.STORE: str(tmp_path / "store"), server.WRITES: "1"}
    real = server.Store._put_part
    parts: list[str] = []

    def put_part(store: server.Store, path: str, content: bytes) -> None:
        parts.append(path)
        if len(parts) == 2:
            raise error
        real(store, path, content)

    monkeypatch.setattr(server.Store, "_put_part", put_part)
    status = Status("x", tmp_path / "state")
    store = server.Store(str(tmp_path / "store"))
    keys = [store_lookup.package_key(progress.plan.options, item) for item in items]
    with kept_sentences() as said:
        store_transfer.put(progress.plan, environ, status)
    warned = [record.getMessage() for record in said if record.levelno == logging.WARNING]
    assert ["incomplete" in text and "full" in text for text in warned] == [True]
    assert [store.find(key) is not None for key in keys] == [True, False, False]
    store_transfer.put(progress.plan, environ, status)
    assert [store.find(key) is not None for key in keys] == [True, True, False], "c is not published"
    assert len(parts) == 3, "what the store has is not sent again"


def test_records_that_cannot_be_read_fail_no_upload(tmp_path: Path) -> None:
    plan = transfer_of(tmp_path, packages_of(tmp_path / "made")).plan
    (tmp_path / "packages" / published.RECORDS).mkdir(parents=True)
    with kept_sentences() as said:
        environ = {server.STORE: str(tmp_path / "store"), server.WRITES: "1"}
        store_transfer.put(plan, environ, Status("x", tmp_path / "state"))
    warned = [record.getMessage() for record in said if record.levelno == logging.WARNING]
    assert ["incomplete" in text and published.RECORDS in text for text in warned] == [True]


@pytest.mark.parametrize("key", ["1", "another"])
def test_a_fetched_tree_is_no_longer_shown(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it cannot be used: the rest of the run would seem to unpack it."""
    fingerprint = Fingerprint(source={"recipe": "1"})
    finished(tmp_path / "other", "new", fingerprint)
    (tmp_path / "here").mkdir()
    tree_archive.pack({"tree": tmp_path / "other/tree"}, tmp_path / "packed")
    store = server.Store(str(tmp_path / "store"), writes=True)
    assert list(store.put("key", tmp_path / "packed"))
    monkeypatch.setattr(Progress, "read", lambda plan: SimpleNamespace(needs_staging=True))
    options = SimpleNamespace(state=tmp_path / "here")
    staging = Fingerprint(source={"recipe": key})
    plan = SimpleNamespace(all_items=(), staged_name="libtorch", options=options, staging=staging)
    stored = store_lookup.Stored(staging=store.find("key"))
    progress = cast(Any, SimpleNamespace(plan=plan, stored=stored, existing=frozenset(), awaited_tests={}))
    status = Status("x", tmp_path / "here")
    rows: list[str] = []
    status.watch = lambda: rows.extend(row.what for row in status.record.activities)
    store_transfer.fetch(progress, {server.STORE: store.address}, status)
    assert "unpacking the finished libtorch" in rows
    assert status.record.activities == []
