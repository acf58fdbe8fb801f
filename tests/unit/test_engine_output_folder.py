"""The engine's output folder: its index and modes, and what becomes of it after a killed run."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from small_files import write
from tiny import make_channel, make_package

from groundwork import channel_folder, files
from groundwork.errors import IntegrityError, PreflightError
from megabuild.engine import archive, output_folder


def raising(error: BaseException) -> Callable[..., object]:
    """Return a function that fails."""

    def fail(*_: object, **__: object) -> object:
        raise error

    return fail


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_channel(tmp_path_factory.mktemp("made"), (("torch", "1", "0"), ("torch", "1", "1")))


@pytest.fixture
def out(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "out")


def test_an_index_names_exactly_the_packages_and_changes_only_the_modes_of_a_channel(out: Path) -> None:
    (out / "linux-64" / "torch-1-0.conda").unlink()
    (out / "linux-64" / "torch-1-1.conda").chmod(0o600)
    make_package(out / "linux-64", "pyg", "2", "0")
    program = write(out / "build_cache" / "staging_x" / "prefix" / "bin" / "program", "")
    program.chmod(0o750)
    former = os.umask(0o077)
    try:
        channel_folder.index(out, "linux-64")
    finally:
        os.umask(former)
    index = out / "linux-64" / "repodata.json"
    assert sorted(json.loads(index.read_text())["packages.conda"]) == ["pyg-2-0.conda", "torch-1-1.conda"]
    files = (program, out / "linux-64" / "torch-1-1.conda", index)
    assert [path.stat().st_mode & 0o777 for path in files] == [0o750, 0o644, 0o644]


def test_a_staging_without_its_metadata_goes_and_a_whole_one_stays(out: Path) -> None:
    for name in ("staging_half", "staging_torn", "staging_whole"):
        (out / "build_cache" / name / "work_dir").mkdir(parents=True)
    (out / "build_cache" / "staging_torn" / "metadata.json").write_text('{"name": ')
    (out / "build_cache" / "staging_whole" / "metadata.json").write_text("{}")
    output_folder.seal_stagings(out)
    output_folder.heal(out)
    assert [path.name for path in (out / "build_cache").iterdir()] == ["staging_whole"]
    output_folder.drop_stagings(out)
    assert not output_folder.staging_caches(out)


@pytest.mark.parametrize(
    "damage", ["never sealed", "link", '{"staging_1', '"staging_1"', '{"staging_1": 1}', "1"]
)
def test_a_staging_that_was_not_flushed_goes(out: Path, damage: str) -> None:
    staging = out / "build_cache" / "staging_1"

    def make() -> None:
        (staging / "prefix").mkdir(parents=True)
        (staging / "metadata.json").write_text("{}")

    make()
    if damage != "never sealed":
        output_folder.seal_stagings(out)
        assert output_folder.staging_caches(out) == [staging]
    if damage == "link":  # of a build's, to have all of the machine looked at
        (staging / "prefix").rename(out / "moved")
        (staging / "prefix").symlink_to(out / "moved")
    elif damage != "never sealed":
        (out.parent / "stagings.json").write_text(damage)
    assert output_folder.staging_caches(out) == []
    output_folder.heal(out)
    assert not staging.exists()
    make()
    assert output_folder.staging_caches(out) == [], "a former one's seal is not that of a new one"
    output_folder.seal_stagings(out)
    assert output_folder.staging_caches(out) == [staging]


@pytest.mark.parametrize("flipped", [False, True])
def test_a_package_cut_off_or_with_a_flipped_byte_goes(out: Path, flipped: bool) -> None:
    package = out / "linux-64" / "torch-1-0.conda"
    content = bytearray(package.read_bytes())
    content[len(content) // 2] ^= 0xFF if flipped else 0
    package.write_bytes(content if flipped else content[:-20])
    output_folder.heal(out)
    assert [path.name for path in channel_folder.package_files(out)] == ["torch-1-1.conda"]


def test_work_folders_and_temporary_files_go(out: Path) -> None:
    for folder in ("bld/rattler-build_x/work", "test/test_x", "broken", ".tmp", "build_cache/.removed-1234"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    (out / "linux-64" / ".tmpAbCdEf").write_text("half a package")
    output_folder.heal(out)
    assert sorted(path.name for path in out.iterdir() if not path.name.startswith(".")) == [
        "build_cache", "linux-64", "noarch",
    ]  # fmt: skip
    assert not list((out / "linux-64").glob(".tmp*"))
    assert not list((out / "build_cache").iterdir())


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder of somebody's, which stays as it is."""
    folder = make_channel(tmp_path / "elsewhere", (("mine", "1", "0"),))
    (folder / ".tmp").mkdir(exist_ok=True)
    for name in (".removed-1", "staging_1", "bld"):
        (folder / name).mkdir()
        (folder / name / "note").write_text("mine")
    (folder / "linux-64" / "cut-1-0.conda").write_bytes(b"mine")
    (folder / "secret").write_text("{}")
    (folder / "secret").chmod(0o600)
    before = {path: (path.lstat().st_mode, path.lstat().st_mtime_ns) for path in folder.rglob("*")}
    yield folder
    assert {path: (path.lstat().st_mode, path.lstat().st_mtime_ns) for path in folder.rglob("*")} == before


@pytest.mark.parametrize(
    "name", ["bld", "build_cache", "noarch", "linux-64", "osx-64", "a", ".tmp", ".removed-2"]
)
def test_a_link_to_a_folder_is_removed_and_not_followed(out: Path, elsewhere: Path, name: str) -> None:
    for former in out.glob(name):
        shutil.rmtree(former)
    (out / name).symlink_to(elsewhere if name != "linux-64" else elsewhere / "linux-64")
    assert elsewhere / "linux-64" not in {path.resolve().parent for path in channel_folder.package_files(out)}
    output_folder.heal(out)
    assert not (out / name).is_symlink()
    channel_folder.write_index(out, "linux-64")


@pytest.mark.parametrize("name", ["linux-64"])
def test_a_channel_with_a_link_in_the_place_of_a_folder_is_not_indexed(
    name: str, out: Path, elsewhere: Path
) -> None:
    """A build may have made it since the healing."""
    shutil.rmtree(out / name, ignore_errors=True)
    (out / name).symlink_to(elsewhere / "linux-64")
    with pytest.raises(IntegrityError, match="is a symbolic link"):
        channel_folder.write_index(out, "linux-64")


@pytest.mark.parametrize("name", ["x-1-0.conda", "repodata.json", ".tmp-x", ".removed-1"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_link_or_a_pipe_among_packages_is_removed(out: Path, elsewhere: Path, name: str, kind: str) -> None:
    path = out / "linux-64" / name
    path.unlink(missing_ok=True)
    path.symlink_to(elsewhere / "secret") if kind == "link" else os.mkfifo(path)
    assert path not in channel_folder.package_files(out)
    output_folder.heal(out)
    assert not os.path.lexists(path)
    channel_folder.write_index(out, "linux-64")
    assert not path.is_symlink()


@pytest.mark.parametrize(
    "content", ["link", "pipe", b"", b'{"a', b"\xff", b"[]", b"[" * 100_000], ids=range(7)
)
def test_a_staging_whose_metadata_is_no_object_is_none(tmp_path: Path, content: str | bytes) -> None:
    out = tmp_path / "out"
    metadata = out / "build_cache" / "staging_1" / "metadata.json"
    write(metadata, "{}")
    output_folder.seal_stagings(out)
    metadata.unlink()
    if content == "link":
        metadata.symlink_to(write(tmp_path / "elsewhere", "{}"))
    elif content == "pipe":
        os.mkfifo(metadata)
    else:
        write(metadata, content)
    assert output_folder.staging_caches(out) == []
    output_folder.heal(out)
    assert not metadata.parent.exists()


def test_without_memory_a_package_is_not_damaged(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be deleted."""
    monkeypatch.setattr(files, "open_regular", raising(MemoryError()))
    with pytest.raises(MemoryError):
        archive.read(out / "linux-64" / "torch-1-0.conda")
    monkeypatch.setattr(files, "open_regular", raising(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(PreflightError, match="Input/output error"):
        archive.read(out / "linux-64" / "torch-1-0.conda")


def test_an_archive_that_is_a_pipe_or_a_link_is_not_read(out: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.conda")
    (tmp_path / "link.conda").symlink_to(out / "linux-64" / "torch-1-0.conda")
    for name in ("pipe.conda", "link.conda"):
        with pytest.raises(IntegrityError, match=name):
            archive.read(tmp_path / name)


def test_former_builds_and_half_unpacked_packages_are_unpacked_again(tmp_path: Path) -> None:
    cache, link = tmp_path / "pkgs", tmp_path / "link"
    for name in ("a-1-0", "b-1-0", "c-1-0", ".c-1-0aB3dE6", "other-1-0"):
        write(cache / name / "info", "")
    published = {"a-1-0.conda": False, "b-1-0.conda": True, "c-1-0.conda": True}
    link.symlink_to(cache)
    with write(cache / ".cache.lock", "").open() as held:
        output_folder.drop_unpacked(link, published)
        for kind in (fcntl.LOCK_SH, fcntl.LOCK_EX):  # as another run that reads or unpacks
            fcntl.flock(held, kind)
            output_folder.drop_unpacked(cache, published)
    assert len([*cache.iterdir()]) == 6
    output_folder.drop_unpacked(cache, published)
    assert {path.name for path in cache.iterdir()} == {"b-1-0", "other-1-0", ".cache.lock"}


def test_a_run_begins_with_an_index_of_whole_packages_alone(tmp_path: Path) -> None:
    """rattler-build takes packages of the index for built, and so do the tests of others."""
    out = tmp_path / "out" / "linux-64"
    whole, torn = (make_package(out, name, "1", "0") for name in ("whole", "torn"))
    torn.write_bytes(torn.read_bytes()[:-30])
    published = make_package(tmp_path / "packages" / "linux-64", "published", "1", "0")
    unfinished = write(out / ".tmp1a2b3c")
    for name in ("tmp", output_folder.FINISHED, ".removed-0123-out"):
        write(tmp_path / name / "file")
    inputs = {path.name: "f" for path in (whole, torn, published)}
    write(tmp_path / "out" / output_folder.INPUTS, "".join(f"{name} f\n" for name in inputs))
    left = output_folder.prepare_output(tmp_path, inputs=inputs, published=[published], platform="linux-64")
    assert left == [f"linux-64/{whole.name}"]
    listed = channel_folder.listed_hashes(tmp_path / "out")
    assert listed == {f"linux-64/{path.name}": files.sha256(path) for path in (whole, published)}
    assert not torn.exists()
    assert not unfinished.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"out", "packages", "stagings.json"}


@pytest.mark.parametrize("damage", ["damaged", "b.conda", "\xff f"])
def test_after_damage_of_their_record_packages_are_made_again(damage: str, tmp_path: Path) -> None:
    """The lines before the damage may be of another run than those behind it."""
    made = make_package(tmp_path / "out/linux-64", "a", "1", "0")
    (tmp_path / "out" / output_folder.INPUTS).write_bytes(f"{made.name} f\n{damage}\n".encode("latin-1"))
    inputs = {made.name: "f"}
    assert output_folder.prepare_output(tmp_path, inputs=inputs, published=[], platform="linux-64") == []
    assert not made.exists()


def test_a_staging_of_another_machine_is_flushed_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[bool] = []
    out = tmp_path / "out"
    write(tmp_path / "fetched/staging_1/metadata.json", "{}")
    monkeypatch.setattr(os, "sync", lambda: flushed.append((out / "build_cache/staging_1").is_dir()))
    output_folder.take_stagings(tmp_path / "fetched", out)
    assert flushed == [True]
    assert output_folder.staging_caches(out) == [out / "build_cache/staging_1"]


@pytest.mark.parametrize(
    "forget", [output_folder.drop_stagings, output_folder.heal], ids=lambda one: one.__name__
)
def test_a_later_staging_of_the_name_of_a_removed_one_is_not_a_flushed_one(
    forget: Callable[[Path], None], tmp_path: Path
) -> None:
    """rattler-build may be killed, or the power be cut, while it writes that one."""
    metadata = write(tmp_path / "out/build_cache/staging_1/metadata.json", "{}")
    output_folder.seal_stagings(tmp_path / "out")
    if forget is output_folder.heal:
        metadata.unlink()
    forget(tmp_path / "out")
    assert not metadata.parent.exists()
    write(metadata, "{}")
    assert output_folder.staging_caches(tmp_path / "out") == []


def test_packages_outside_a_plan_are_kept_with_their_inputs_for_a_later_one(tmp_path: Path) -> None:
    """Such as a run for another Python; they count for none whose inputs are others."""
    names = {name: f"{name}-1-0.conda" for name in ("first", "second")}
    for name in names:
        make_package(tmp_path / "out" / "linux-64", name, "1", "0")
    write(tmp_path / "out" / output_folder.INPUTS, "".join(f"{name} f\n" for name in names.values()))

    def prepare(**inputs: str) -> list[str]:
        planned = {names[name]: value for name, value in inputs.items()}
        return output_folder.prepare_output(tmp_path, inputs=planned, published=[], platform="linux-64")

    assert prepare(first="f") == ["linux-64/first-1-0.conda"]
    assert prepare(second="f") == ["linux-64/second-1-0.conda"]
    assert prepare(first="f", second="g") == ["linux-64/first-1-0.conda"]
    assert prepare(second="f") == []


def test_each_staging_that_is_finished_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another feedstock's recipe may have several. A staging counts when it is on the disk."""
    flushed: list[int] = []
    monkeypatch.setattr(
        os, "sync", lambda: flushed.append(len(output_folder.staging_caches(tmp_path / "out")))
    )
    for number in range(1, 3):
        write(tmp_path / f"out/build_cache/staging_{number}/metadata.json", "{}")
        for _ in range(2):
            output_folder.seal_stagings(tmp_path / "out")
        assert len(output_folder.staging_caches(tmp_path / "out")) == len(flushed) == number
    assert flushed == [0, 1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"packages.conda": 3}',
        '{"packages.conda": {"a": 1}}',
        '{"packages.conda": {"a": {}}}',
        None,
    ],
)
def test_an_index_that_cannot_be_read_lists_unknown_packages(text: str | None, tmp_path: Path) -> None:
    write(tmp_path / "noarch/repodata.json", '{"packages.conda": {"b": {"sha256": "1"}}}')
    write(tmp_path / ".tmp/note")
    assert channel_folder.listed_hashes(tmp_path) == {"noarch/b": "1"}
    (tmp_path / "linux-64").mkdir()
    if text is not None:
        write(tmp_path / "linux-64/repodata.json", text)
    assert channel_folder.listed_hashes(tmp_path) is None
