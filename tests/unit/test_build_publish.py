"""What may be published."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from package_files import rot
from rattler.package_streaming import extract
from small_files import write
from stop_at_write import watched
from tiny import make_package

from groundwork import files
from groundwork.channel import Channel
from groundwork.errors import BuildError, IntegrityError
from megabuild.configs.render import PlannedPackage
from megabuild.engine import archive, reproducible
from megabuild.run import package_build
from megabuild.run.shelf import Shelf
from megabuild.run.summary import _published_row, package_results
from megabuild.store import published

NOTHING: tuple[str, ...] = ()
PLANNED = PlannedPackage(
    name="pytorch", version="2.13.0", build_string="py312_h0_0", build_number=0,
    file_name="pytorch-2.13.0-py312_h0_0.conda", subdir="linux-64", python="3.12", build=NOTHING, host=NOTHING,
    run=NOTHING, constraints=NOTHING, test=NOTHING,
)  # fmt: skip


def package(folder: Path, files: dict[str, str], planned: PlannedPackage = PLANNED) -> Path:
    return make_package(
        folder / "out" / "linux-64", planned.name, planned.version, planned.build_string, files
    )


RECORD = published.PublishedPackage(path="", size=1, sha256="", fingerprint="")


def publish(folder: Path, name: str, text: str = "x") -> tuple[Path, published.PublishedPackage]:
    """Publish a package of its own in the channel ``folder / "packages"``."""
    path = make_package(folder / "made" / text / "linux-64", name, "1", "0", {f"lib/{name}": text})
    channel, fingerprints = folder / "packages", {path.name: "f"}
    known = published.publish(
        channel, [archive.read(path)], platform="linux-64", fingerprints=fingerprints, seconds={}
    )
    return channel, known[path.name]


def test_a_package_that_is_what_was_planned_is_published_and_known_from_then_on(tmp_path: Path) -> None:
    found = archive.verify(PLANNED, package(tmp_path, {"lib/libtorch_python.so": "x"}))
    channel, names = tmp_path / "packages", {PLANNED.file_name: "f"}
    known = published.publish(channel, [found], platform="linux-64", fingerprints=names, seconds={})
    record = known[PLANNED.file_name]
    assert published.records(channel) == known
    assert [published.is_published(channel, record, what) for what in ("f", "another")] == [True, False]
    assert not published.is_published(channel, None, "f")
    longer = replace(record, fingerprint="0" * 64)
    assert [published.is_published(channel, longer, f"{'0' * 63}{end}") for end in "01"] == [True, False]
    assert files.sha256(channel / record.path) == record.sha256
    repodata = json.loads((channel / "linux-64" / "repodata.json").read_text())
    assert list(repodata["packages.conda"]) == [PLANNED.file_name]


def test_a_former_build_is_that_of_a_package_with_the_same_python_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"pytorch-2.13.0-cpu_py{python}_h{build}_0.conda" for python in ("312", "313") for build in "12"]
    names += [
        f"{name}-2.13.0-cpu_h{build}_0.conda" for name in ("libtorch", "libtorch-cuda") for build in "12"
    ]
    earlier, later = replace(RECORD, modified=1), replace(RECORD, modified=2)
    monkeypatch.setattr(published, "records", lambda _: dict(zip(names, [earlier, later] * 4, strict=True)))
    assert published.current_names(tmp_path, ()) == names[1::2], "as upload takes them"
    assert published.current_names(tmp_path, names[:1]) == [names[0], *names[3::2]]


def test_builds_without_a_python_in_their_names_may_be_for_one_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"tool-1.0-h{build}_0.conda" for build in "123"]
    monkeypatch.setattr(published, "records", lambda _: dict.fromkeys(names, RECORD))
    assert published.current_names(tmp_path, ()) == names
    assert published.current_names(tmp_path, names[:2]) == names[:2]


def test_an_index_with_the_hash_of_another_file_is_written_again(tmp_path: Path) -> None:
    """As that of a former build under the same name: no client could install the package."""
    channel, record = publish(tmp_path, "a")
    publish(tmp_path, "b")
    assert published.repair(channel, "linux-64") == []
    path = channel / "linux-64" / "repodata.json"
    whole = path.read_text()
    path.write_text(whole.replace(record.sha256, "0" * 64))
    assert path.read_text() != whole
    assert published.repair(channel, "linux-64") == [f"{channel}: its index was damaged and has been rebuilt"]
    assert json.loads(path.read_text())["packages.conda"] == json.loads(whole)["packages.conda"]


@pytest.mark.parametrize("missing", [(), ("first",), ("second",), ("first", "second")], ids=str)
def test_channels_that_a_package_needs_are_there_together_or_not_at_all(
    missing: tuple[str, ...], tmp_path: Path
) -> None:
    channel, _ = publish(tmp_path, "a")
    needed = [Channel.of_folder(tmp_path / name) for name in ("first", "second")]
    server = Channel.parse("https://x.example/c")
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    for beside in ((server,), (*needed, server), (server,)):
        published.note_channels(channel, beside)
    for name in missing:
        (tmp_path / name).rmdir()
    expected = [(server,)] if missing else [(server,), (*needed, server)]
    assert published.needed_channels(channel) == expected


def test_a_channel_whose_folder_is_missing_at_present_stays_noted(tmp_path: Path) -> None:
    channel, _ = publish(tmp_path, "a")
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    elsewhere = (Channel.of_folder(mounted),)
    published.note_channels(channel, elsewhere)
    mounted.rmdir()
    server = (Channel.parse("https://x.example/c"),)
    published.note_channels(channel, server)
    assert published.needed_channels(channel) == [server]
    mounted.mkdir()
    assert published.needed_channels(channel) == [server, elsewhere]


def test_a_package_leaves_the_records_before_the_disk(tmp_path: Path) -> None:
    channel, record = publish(tmp_path, "a")
    rot(channel / record.path)
    with watched(channel) as calls:
        published.repair(channel, "linux-64")
    assert calls.index(f"rename {published.RECORDS}") < calls.index(f"remove {record.path}")


def test_a_former_record_leaves_before_its_package_is_replaced(tmp_path: Path) -> None:
    """Killed in between, the next run would find a damaged package."""
    channel, record = publish(tmp_path, "a")
    with watched(channel) as calls:
        publish(tmp_path, "a", "another")
    assert calls.index(f"rename {published.RECORDS}") < calls.index(f"rename {record.path}")


def test_a_package_is_on_the_disk_before_it_has_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[tuple[int, bool]] = []

    def fsync(file: int) -> None:
        known.append((os.fstat(file).st_ino, bool(published.records(tmp_path / "packages"))))

    monkeypatch.setattr(os, "fsync", fsync)
    channel, record = publish(tmp_path, "libtorch")
    assert known == [((channel / record.path).stat().st_ino, False)]


def test_a_published_package_of_other_inputs_is_no_result_of_a_run(tmp_path: Path) -> None:
    """A former run's, of the same name; its successor has failed, or was not reached."""
    items = []
    for name, fingerprint in (("a", "f"), ("b", "f"), ("c", "g"), ("d", "g"), ("e", "f")):
        if name != "e":
            channel, _ = publish(tmp_path, name, text=name)
        items.append(
            SimpleNamespace(
                file_name=f"{name}-1-0.conda", package=SimpleNamespace(id=name), fingerprint=fingerprint
            )
        )
    options = SimpleNamespace(packages=channel)
    plan = SimpleNamespace(all_items=items, options=options, untested="")
    error = BuildError("x.cpp:1: no such header\nmore")
    error.packages = frozenset({"b-1-0.conda", "c-1-0.conda"})  # one was published before the task failed
    start = SimpleNamespace(plan=plan, existing={"a-1-0.conda"})
    rows: Any = package_results(cast(Any, start), {"task": error})
    assert [(row.package, row.status.value, row.note) for row in rows] == [
        ("a", "skipped", ""), ("b", "built", ""), ("c", "failed", "x.cpp:1: no such header"),
        ("d", "missing", ""), ("e", "missing", ""),
    ]  # fmt: skip
    record = replace(published.records(channel)["a-1-0.conda"], seconds=7.0)
    took = [
        _published_row(cast(Any, "a"), record, channel, existed=existed).seconds for existed in (True, False)
    ]
    assert took == [0.0, 7.0], "of this run"


def test_everybody_may_read_what_is_published_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        channel, record = publish(tmp_path / "output", "one")
        published.note_channels(channel, [Channel.parse("https://conda.example/conda-forge")])
        sums = published.write_sums(tmp_path / "output")
    finally:
        os.umask(before)
    paths = [channel.parent, channel, *channel.rglob("*"), sums]
    modes = {path: path.stat().st_mode & 0o777 for path in paths}
    assert {channel / record.path, channel / "linux-64" / "repodata.json"} <= modes.keys()
    assert all(mode == (0o755 if path.is_dir() else 0o644) for path, mode in modes.items()), modes


def test_a_package_with_another_build_string_is_refused(tmp_path: Path) -> None:
    path = package(tmp_path, {"a": "x"}, replace(PLANNED, build_string="py312_h1_0"))
    with pytest.raises(IntegrityError, match=r"contains .*py312_h1_0"):
        archive.verify(PLANNED, path)


@pytest.mark.parametrize(
    ("files", "foreign"),
    [
        (["p/a.py", "p/__pycache__/a.cpython-312.pyc"], []),
        (["p/a.py", "p/__pycache__/a.cpython-312.opt-1.pyc"], []),
        (["p/a.py", "p/__pycache__/a.cpython-311.pyc"], ["p/__pycache__/a.cpython-311.pyc"]),
        (["numpy/__pycache__/a.cpython-312.pyc"], ["numpy/__pycache__/a.cpython-312.pyc"]),
        (["p/a.py", "p/a.pyc"], []),
    ],
)
def test_compiled_files_must_be_the_package_s_own(files: list[str], foreign: list[str]) -> None:
    assert archive.foreign_bytecode(files, "3.12") == foreign


def test_compiled_files_of_a_free_threaded_python_may_have_either_tag() -> None:
    files = ["a.py", *(f"__pycache__/a.cpython-{tag}.pyc" for tag in ("313", "313t", "312"))]
    assert archive.foreign_bytecode(files, "3.13t") == files[-1:]


def test_a_package_with_another_python_s_compiled_files_is_refused(tmp_path: Path) -> None:
    names = ["p/a.py", "p/__pycache__/a.cpython-312.pyc", "p/__pycache__/a.cpython-311.pyc"]
    path = package(tmp_path, dict.fromkeys(names, "x"))
    with pytest.raises(
        IntegrityError, match=r"of another package or Python: p/__pycache__/a\.cpython-311\.pyc$"
    ):
        archive.verify(PLANNED, path)


def test_a_path_has_one_owner_but_builds_of_one_package_may_share_it(tmp_path: Path) -> None:
    def read(name: str, build: str, *files: str) -> archive.Archive:
        path = make_package(tmp_path / name / build, name, "1", build, dict.fromkeys(files, "x"))
        return archive.read(path)

    linalg = [read("linalg", flavour, "lib/linalg.so") for flavour in ("magma", "nomagma")]
    archive.check_owners([*linalg, read("libtorch", "0", "lib/libtorch.so")])
    with pytest.raises(IntegrityError, match=r"lib/linalg.so \(libtorch, linalg\)"):
        archive.check_owners([*linalg, read("libtorch", "1", "lib/linalg.so")])


def test_a_package_that_was_written_to_is_read_again(tmp_path: Path) -> None:
    channel, record = publish(tmp_path, "one")
    path = channel / record.path
    path.touch()
    assert published.is_published(channel, record, "f")
    assert published.repair(channel, "linux-64") == []
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert not published.is_published(channel, record, "f")
    assert [told.partition(": ")[0] for told in published.repair(channel, "linux-64")] == ["one-1-0.conda"]
    assert published.records(channel) == {}
    assert json.loads((channel / "linux-64" / "repodata.json").read_text())["packages.conda"] == {}
    channel, record = publish(tmp_path, "gone")
    (channel / record.path).unlink()
    assert published.repair(channel, "linux-64")
    assert published.records(channel) == {}


def test_a_package_is_compared_with_its_record_also_by_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, record = publish(tmp_path, "one")
    path = channel / record.path
    monkeypatch.chdir(path.parent)
    spellings = (path, Path(path.name))
    for spelling in spellings:
        published.check(spelling)
    rot(path)
    for spelling in spellings:
        with pytest.raises(IntegrityError, match=f"^{spelling}: damaged since it was published$"):
            published.check(spelling)
    path.unlink()
    for spelling in spellings:
        with pytest.raises(IntegrityError, match=f"^{spelling}: missing, although it was published$"):
            published.check(spelling)


def test_each_damaged_package_is_removed_and_named(tmp_path: Path) -> None:
    names = ("one", "two", "three")
    for name in names:
        channel, _ = publish(tmp_path / "packages", name)
    found = published.records(channel)
    broken = [file for file in found if file.startswith(("one", "two"))]
    for file in broken:
        (channel / found[file].path).write_bytes(b"rot")
    whole = found["three-1-0.conda"]
    listed = published.write_sums(tmp_path).read_text()
    assert listed == f"{whole.sha256}  packages/{channel.name}/{whole.path}\n", (
        "as sha256sum --check reads it"
    )
    problems = published.repair(channel, "linux-64")
    assert [problem.partition(":")[0] for problem in problems] == broken
    assert published.records(channel).keys() == found.keys() - set(broken)


@pytest.mark.parametrize("has_record", [False, True])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_package_that_this_user_may_not_read_is_not_removed(
    number: int, has_record: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no damaged one: another user may have put it into the channel."""
    channel, record = publish(tmp_path, "one")
    path = channel / record.path
    if not has_record:
        (channel / published.RECORDS).unlink()
    refused = OSError(number, os.strerror(number), str(path))
    for reader in ("open_regular", "sha256"):
        monkeypatch.setattr(files, reader, Mock(side_effect=refused))
    with pytest.raises(IntegrityError, match=f"{path}: cannot be read"):
        published.repair(channel, "linux-64")
    assert path.exists()


@pytest.mark.parametrize("damage", ["absent", "cut off", "of other packages"])
def test_an_index_that_does_not_fit_is_written_anew(tmp_path: Path, damage: str) -> None:
    channel, record = publish(tmp_path, "one")
    index, name = channel / "linux-64" / "repodata.json", Path(record.path).name
    whole = index.read_text()
    if damage == "absent":
        index.unlink()
    else:
        index.write_text(whole[:-20] if damage == "cut off" else whole.replace(name, "other-1-0.conda"))
    assert len(published.repair(channel, "linux-64")) == 1
    assert list(json.loads(index.read_text())["packages.conda"]) == [name]
    assert published.repair(channel, "linux-64") == []


def test_what_has_a_record_is_in_the_index_however_a_run_ends(tmp_path: Path) -> None:
    channel, record = publish(tmp_path, "one", "former")
    index = channel / "noarch" / "repodata.json"
    index.unlink()
    index.mkdir()  # where no index can be written, as if the run had ended before that
    with pytest.raises(Exception, match="repodata"):
        publish(tmp_path, "one", "later")
    assert files.sha256(channel / record.path) != record.sha256
    assert published.records(channel) == {}


def test_a_package_that_rots_during_a_run_is_not_indexed(tmp_path: Path) -> None:
    channel, record = publish(tmp_path, "one")
    rot(channel / record.path)
    with pytest.raises(IntegrityError, match=r"one-1-0\.conda: damaged"):
        publish(tmp_path, "two")
    assert list(published.records(channel)) == ["two-1-0.conda"]
    assert published.repair(channel, "linux-64") == []
    assert [path.name for path in (channel / "linux-64").glob("*.conda")] == ["two-1-0.conda"]
    rot(channel / "linux-64" / "two-1-0.conda")
    publish(tmp_path, "two", "built again")


@pytest.mark.parametrize(("is_tested", "left"), [(True, ""), (False, "tests-1-0.conda")])
def test_packages_await_the_latest_tests_until_these_have_passed(
    is_tested: bool, left: str, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        channel, _ = publish(tmp_path, name)
    for awaited in ("former-1-0.conda", "tests-1-0.conda"):
        published.await_tests(channel, {"a-1-0.conda": awaited, "b-1-0.conda": "others-1-0.conda"})
    found = archive.read(make_package(tmp_path / "made" / "linux-64", "tests", "1", "0", {"tests": "x"}))
    names = {found.path.name: "f"}
    known = published.publish(
        channel, [found], platform="linux-64", fingerprints=names, seconds={}, is_tested=is_tested
    )
    assert published.records(channel) == known
    assert [known[name].awaits for name in ("a-1-0.conda", "b-1-0.conda")] == [left, "others-1-0.conda"]


@pytest.mark.parametrize("path", ["../../mine", "/tmp/mine", "linux-64/../mine-1-0.conda", "mine-1-0.conda",
                                  "linux-64/other-1-0.conda", "elsewhere/mine-1-0.conda"])  # fmt: skip
def test_a_record_leads_nowhere_else(tmp_path: Path, path: str) -> None:
    channel, record = publish(tmp_path, "one")
    mine = tmp_path / "mine"
    mine.write_text("mine")
    wrong = {"mine-1-0.conda": {**asdict(record), "path": path}, "mine": {**asdict(record), "path": path}}
    (channel / published.RECORDS).write_text(json.dumps({**wrong, "one-1-0.conda": asdict(record)}))
    assert list(published.records(channel)) == ["one-1-0.conda"]
    published.repair(channel, "linux-64")
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("text", ['{"a": {"path": 1}}', "[]", "{", "\udcff", '{"a": null}', '{"a":' * 100_000,
                                  '{"a": {"path": "x", "size": "1", "sha256": 1, "fingerprint": {}}}'])  # fmt: skip
def test_damaged_records_are_none(tmp_path: Path, text: str) -> None:
    channel, _ = publish(tmp_path, "one")
    (channel / published.RECORDS).write_bytes(text.encode(errors="surrogateescape"))
    assert published.records(channel) == {}
    assert published.repair(channel, "linux-64") == []
    assert (channel / "linux-64" / "one-1-0.conda").is_file()


def test_a_package_that_cannot_be_read_is_not_taken_for_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, record = publish(tmp_path, "one")

    def failing(path: Path) -> str:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(files, "sha256", failing)
    with pytest.raises(IntegrityError, match=r"one-1-0\.conda: .*Input/output error"):
        published.repair(channel, "linux-64")
    assert (channel / record.path).is_file()


def test_records_that_cannot_be_read_are_not_taken_for_none(tmp_path: Path) -> None:
    channel, _ = publish(tmp_path, "one")
    (channel / published.RECORDS).unlink()
    (channel / published.RECORDS).mkdir()
    with pytest.raises(OSError, match="not a file"):
        published.records(channel)


@pytest.mark.parametrize("rejected", [(), ("a",), ("c",), ("a", "b", "c")], ids=str)
def test_all_rejected_packages_and_no_others_are_removed(rejected: Sequence[str], tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / "out/linux-64" / f"{name}-1-0.conda", "x")
    shelf = Shelf(tmp_path, cast(Any, None))
    shelf._rejected.update(f"{name}-1-0.conda" for name in rejected)
    shelf.drop_rejected()
    left = {path.name[0] for path in (tmp_path / "out/linux-64").iterdir()}
    assert left == {*"abc"} - {*rejected}


def test_a_published_package_names_the_servers_of_its_channels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build saw folders of this machine that have an index of a server's packages."""
    built = package(tmp_path, {"lib/x": "x"})
    monkeypatch.setattr(package_build.archive, "verify", lambda *_: None)  # type: ignore[attr-defined]
    channels = (
        Channel(address="https://a.example/c", folder=tmp_path),
        Channel(address="https://b.example/c"),
        Channel.of_folder(tmp_path),
    )
    plan = SimpleNamespace(date=1_000_000_000, environment=SimpleNamespace(channels=channels, local=False))
    attempt = SimpleNamespace(run=SimpleNamespace(plan=plan), halt=lambda: None)
    package_build.finish(cast(Any, attempt), PLANNED, built, tmp_path / "finished")
    extract(tmp_path / "finished/linux-64" / built.name, tmp_path / "extracted")
    about = json.loads((tmp_path / "extracted/info/about.json").read_text())
    assert about["channels"] == ["https://a.example/c/"]


@pytest.mark.parametrize("local", [True, False])
def test_the_glibc_of_this_machine_counts_for_packages_that_its_compilers_made(
    local: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task may be stopped meanwhile: a large package takes minutes."""
    finished: list[object] = []
    normalise = reproducible.normalise

    def halt() -> None:
        finished.append("halt")

    def note(built: Path, target: Path, date: int, **how: Any) -> None:
        finished.append((date, how["local"]))
        normalise(built, target, date, **how)

    monkeypatch.setattr(reproducible, "normalise", note)
    built = package(tmp_path, {"lib/x": "x"})
    plan = SimpleNamespace(date=1_000_000_000, environment=SimpleNamespace(channels=(), local=local))
    attempt = SimpleNamespace(run=SimpleNamespace(plan=plan), halt=halt)
    package_build.finish(cast(Any, attempt), PLANNED, built, tmp_path / "finished")
    assert finished[:2] == [(1_000_000_000, local), "halt"]
