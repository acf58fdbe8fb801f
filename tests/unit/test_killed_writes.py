"""A record never vouches for incomplete files, wherever its writer is stopped."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from small_files import write
from stop_at_write import every_stop, note, unflushed, watched
from tiny import make_package, publish

from cmake_python_swap.atomic_file import write_atomically
from groundwork import channel_folder, files, in_use
from groundwork.errors import BusyError
from megabuild.engine import archive, output_folder
from megabuild.isolation.base import Host
from megabuild.plan import tree_reuse, work_record
from megabuild.plan.fingerprint import Fingerprint
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.local.package_store import PackageStore
from megabuild.run.shelf import Shelf
from megabuild.run.work_folders import separate_work
from megabuild.store import published, server

CONTENT = b"0123456789" * 450


@dataclass
class CountedStore:
    """obstore's store, whose puts the helper counts."""

    remote: Any
    folder: Path

    def put(self, path: str, content: bytes) -> None:
        note("put", str(self.folder / path))
        self.remote.put(path, content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.remote, name)


def put(folder: Path) -> None:
    store = server.Store(str(folder / "store"), writes=True)
    store.__dict__["_remote"] = CountedStore(store._remote, folder / "store")
    for _ in store.put("trees/abc", folder / "file"):
        pass


def fetched(folder: Path) -> bytes | None:
    """The content under the key; None if the store has none."""
    store = server.Store(str(folder / "store"))
    record = store.find("trees/abc")
    if record is None:
        return None
    for _ in store.fetch(record, folder / "got"):
        pass
    return (folder / "got").read_bytes()


def test_an_upload_to_the_store_killed_anywhere_is_missing_or_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_PART", 1000)
    here = write(tmp_path / "here" / "file", CONTENT).parent
    stops = 0
    for folder in every_stop(here, put):
        assert fetched(folder) is None
        put(folder)
        assert fetched(folder) == CONTENT
        stops += 1
    assert stops == 3, "two different parts and the record"


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A published package, and its new build with another package."""
    here = tmp_path / "here"
    publish(here / "channel", [make_package(here / "old" / "linux-64", "a", "1", "0", {"x": "old"})])
    for name in ("a", "b"):
        make_package(here / "out" / "linux-64", name, "1", "0", {"x": "new"})
    return here


def publish_new(folder: Path) -> None:
    packages = [archive.read(path) for path in sorted((folder / "out" / "linux-64").glob("*.conda"))]
    fingerprints = dict.fromkeys((package.path.name for package in packages), "new")
    published.publish(
        folder / "channel", packages, platform="linux-64", fingerprints=fingerprints, seconds={}
    )


def test_a_record_never_names_another_file_than_the_published_one(built: Path) -> None:
    for folder in every_stop(built, publish_new, step=2):
        channel = folder / "channel"
        for record in published.records(channel).values():
            assert files.sha256(channel / record.path) == record.sha256


def test_a_channel_whose_repair_was_killed_anywhere_is_repaired_by_the_next(built: Path) -> None:
    """Two damaged packages, one of them without a record, and an index of both."""
    channel = built / "channel"
    whole = make_package(built / "more" / "linux-64", "whole", "1", "0")
    publish(channel, [whole])
    stray = make_package(channel / "linux-64", "stray", "1", "0")
    channel_folder.index(channel, "linux-64")
    for path in (stray, channel / "linux-64/a-1-0.conda"):
        path.write_bytes(path.read_bytes()[:-40])

    def repair(folder: Path) -> None:
        published.repair(folder / "channel", "linux-64")

    for folder in every_stop(built, repair):
        repair(folder)
        here = folder / "channel"
        assert [path.name for path in (here / "linux-64").glob("*.conda")] == [whole.name]
        assert list(published.records(here)) == [whole.name]
        listed = channel_folder.listed_hashes(here)
        assert listed == {f"linux-64/{whole.name}": files.sha256(here / "linux-64" / whole.name)}
        assert published.repair(here, "linux-64") == []
    repair(built)
    assert list(channel_folder.listed_hashes(channel) or ()) == [f"linux-64/{whole.name}"]


def test_a_published_package_is_on_the_disk_before_its_record(built: Path) -> None:
    with watched(built / "channel") as calls:
        publish_new(built)
    written = [number for number, call in enumerate(calls) if call == f"rename {published.RECORDS}"]
    for name in ("a-1-0.conda", "b-1-0.conda"):
        moved, flushed = calls.index(f"rename linux-64/{name}"), calls.index(f"fsync linux-64/{name}")
        assert moved < flushed < next(number for number in written if number > moved)


def test_a_file_killed_anywhere_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    here = write(tmp_path / "here" / "record", "old").parent
    for folder in every_stop(here, lambda folder: files.write(folder / "record", "new", mode=0o644)):
        assert (folder / "record").read_text() in ("old", "new")


def test_threads_that_write_one_file_have_a_temporary_file_each(tmp_path: Path) -> None:
    both = threading.Barrier(2)

    def write_one(content: str) -> None:
        both.wait(10)
        for _ in range(20):
            files.write(tmp_path / "record", content)

    with watched(tmp_path) as calls, ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(write_one, text) for text in ("one", "two")]:
            done.result()
    assert len({call for call in calls if call.startswith("open")}) == 2
    assert (tmp_path / "record").read_text() in ("one", "two")


def test_a_lock_of_a_stopped_process_blocks_no_other(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()

    def use(folder: Path) -> None:
        with in_use.shared_lock(folder / "cache", "own"), files.sole_user(folder / "lock", "busy"):
            write(folder / "file")

    for folder in every_stop(here, use):
        use(folder)
        with in_use.exclusive_lock(folder / "cache", "own") as is_free:
            assert is_free
        with (
            files.sole_user(folder / "lock", "busy"),
            pytest.raises(BusyError),
            files.sole_user(folder / "lock", ""),
        ):
            pass


def staging_of(folder: Path) -> None:
    """A staging as rattler-build finishes it."""
    write(folder / "out/build_cache/staging_1/prefix/lib/libc10.so", "library")
    write(folder / "out/build_cache/staging_1/metadata.json", "{}")


def seal(folder: Path) -> None:
    staging_of(folder)
    output_folder.seal_stagings(folder / "out")


def note_checksum(folder: Path) -> None:
    path = write(folder / "a.whl", CONTENT)
    assert files.verified(path, files.sha256(path))


def swap_file(folder: Path) -> None:
    write_atomically(folder / "build.ninja", CONTENT)


@pytest.mark.parametrize(
    ("operation", "record"),
    [(seal, "stagings.json"), (note_checksum, "a.whl.checked"), (swap_file, "build.ninja")],
    ids=["a staging", "a download", "a file of the swap"],
)
def test_files_are_on_the_disk_before_their_record(
    operation: Callable[[Path], None], record: str, tmp_path: Path
) -> None:
    """A power cut empties files that were not flushed; a staging's own files are those of rattler-build."""
    with watched(tmp_path) as calls:
        operation(tmp_path)
    assert unflushed(calls, record) == set()
    assert [call for call in calls if call.startswith(("sync ", "fsync "))]


FORMER = Fingerprint(compilers={"gcc": "14"}, source={"recipe": "1"})


@pytest.mark.parametrize(
    "new",
    [Fingerprint(compilers={"gcc": "14"}, source={"recipe": "2"}), Fingerprint(compilers={"gcc": "15"})],
    ids=["other sources", "another compiler"],
)
def test_a_tree_killed_while_it_is_prepared_is_never_taken_for_a_finished_one(
    new: Fingerprint, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    write(here / "tree/build/a.o", "object")
    tree_reuse.write(here / "tree", FORMER)
    seal(here)

    def prepare(folder: Path) -> None:
        decision = tree_reuse.decide(folder / "tree", folder / "out", new)
        tree_reuse.prepare_tree(decision, folder / "tree", folder / "out", new, "")

    assert tree_reuse.decide(here / "tree", here / "out", FORMER).use == tree_reuse.TreeUse.REUSE
    for folder in every_stop(here, prepare):
        assert tree_reuse.decide(folder / "tree", folder / "out", new).use != tree_reuse.TreeUse.REUSE
        prepare(folder)
        assert tree_reuse.decide(folder / "tree", folder / "out", new).use == tree_reuse.TreeUse.RESUME
        assert tree_reuse.read(folder / "tree") == new
        assert os.path.exists(folder / "tree/build/a.o") == (new.compilers == FORMER.compilers)


def test_the_host_never_takes_over_work_of_isolated_builds_after_a_kill(tmp_path: Path) -> None:
    here = tmp_path / "here"
    for name in ("tree/bin/protoc", "out/build_cache/x", "pyg/scatter-py312/out/x", "isolation"):
        write(here / name, "isolated")
    for folder in every_stop(here, lambda folder: separate_work(folder, Host())):
        left = [name for name in ("tree", "out", "pyg/scatter-py312/out") if (folder / name).exists()]
        assert not left or work_record.is_foreign(folder, Host())
        separate_work(folder, Host())
        assert not work_record.is_foreign(folder, Host())
        assert not (folder / "tree").exists()


def test_a_package_of_other_inputs_is_never_taken_for_a_fitting_one_after_a_kill(tmp_path: Path) -> None:
    here = tmp_path / "here"
    built = make_package(here / "out" / "linux-64", "a", "1", "0")
    write(here / "out" / output_folder.INPUTS, f"{built.name} old\n")

    def prepare(folder: Path) -> list[str]:
        inputs = {built.name: "new"}
        return output_folder.prepare_output(folder, inputs=inputs, published=[], platform="linux-64")

    for folder in every_stop(here, prepare):
        assert prepare(folder) == []
        assert not list((folder / "out").rglob(built.name))


def test_a_local_channel_killed_anywhere_is_missing_or_whole(tmp_path: Path) -> None:
    here = tmp_path / "here"
    packages = [LocalPackage(name=name, version="1", platform="linux-64") for name in ("a", "b")]
    for package in packages:
        path = write(PackageStore(here).path(package), package.name)
        write(path.with_name("record.json"), json.dumps({"sha256": files.sha256(path)}))

    def make(folder: Path) -> None:
        PackageStore(folder).channel(packages, ("linux-64", "noarch"))

    for folder in every_stop(here, make):
        store = PackageStore(folder)
        names = {path.name for path in (folder / "channels").rglob("*.conda")}
        assert names in (set(), {package.id.file_name for package in packages})
        assert (store.whole(packages) is None) == (not names)
        make(folder)
        assert store.whole(packages) is not None


def test_a_package_is_announced_when_its_copy_is_whole(tmp_path: Path) -> None:
    """Tests and extensions of other threads use it from then on."""
    package = make_package(tmp_path / "out" / "linux-64", "a", "1", "0")
    seen: list[list[bytes]] = []

    def announce(_: object) -> None:
        seen.append([path.read_bytes() for path in shelf.copies()])

    shelf = Shelf(tmp_path / "state", cast(Any, SimpleNamespace(put=announce)))
    shelf.add(package, 1.0)
    assert seen == [[package.read_bytes()]]


def test_a_copy_that_is_being_made_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that starts meanwhile takes all packages that are listed: each of them must be whole."""
    real = files.copy
    during: list[list[str]] = []

    def copy(source: Path, target: Path) -> None:
        during.append([path.name for path in shelf.copies()])
        real(source, target)
        during.append([path.name for path in shelf.copies()])

    monkeypatch.setattr(files, "copy", copy)
    shelf = Shelf(tmp_path / "state", cast(Any, SimpleNamespace(put=lambda _: None)))
    names = []
    for name in ("a", "b"):
        package = make_package(tmp_path / "out" / "linux-64", name, "1", "0")
        shelf.add(package, 1.0)
        names.append(package.name)
    assert during == [[], [], names[:1], names[:1]]
    assert [path.name for path in shelf.copies()] == names
