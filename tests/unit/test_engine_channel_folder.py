"""What killed runs leave, and what becomes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny import make_channel, make_package

from megabuild.engine import archive, channel_folder
from megabuild.engine.worker import kind_of
from megabuild.errors import IntegrityError


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return make_channel(tmp_path / "out", (("torch", "1", "0"), ("torch", "1", "1")))


def test_a_staging_without_its_metadata_goes_and_a_whole_one_stays(out: Path) -> None:
    for name in ("staging_half", "staging_torn", "staging_whole"):
        (out / "build_cache" / name / "work_dir").mkdir(parents=True)
    (out / "build_cache" / "staging_torn" / "metadata.json").write_text('{"name": ')
    (out / "build_cache" / "staging_whole" / "metadata.json").write_text("{}")
    told = channel_folder.heal(out)
    assert [path.name for path in (out / "build_cache").iterdir()] == ["staging_whole"]
    assert sorted(told) == [
        "half-written staging cache staging_half",
        "half-written staging cache staging_torn",
    ]
    channel_folder.drop_stagings(out)
    assert not channel_folder.staging_caches(out)
    assert not channel_folder.staging_caches(out)


def test_a_package_cut_off_goes(out: Path) -> None:
    package = out / "linux-64" / "torch-1-0.conda"
    package.write_bytes(package.read_bytes()[:-20])
    assert channel_folder.heal(out) == ["damaged package torch-1-0.conda"]
    assert [path.name for path in channel_folder.package_files(out)] == ["torch-1-1.conda"]


def test_a_package_with_a_flipped_byte_is_refused(out: Path) -> None:
    package = out / "linux-64" / "torch-1-0.conda"
    content = bytearray(package.read_bytes())
    content[len(content) // 2] ^= 0xFF
    package.write_bytes(content)
    with pytest.raises(IntegrityError):
        archive.read(package)


def test_work_folders_and_temporary_files_go(out: Path) -> None:
    for folder in ("bld/rattler-build_x/work", "test/test_x", "broken", ".tmp", "build_cache/.removed-1234"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    (out / "linux-64" / ".tmpAbCdEf").write_text("half a package")
    assert channel_folder.heal(out) == []
    assert sorted(path.name for path in out.iterdir() if not path.name.startswith(".")) == [
        "build_cache", "linux-64", "noarch",
    ]  # fmt: skip
    assert not list((out / "linux-64").glob(".tmp*"))
    assert not list((out / "build_cache").iterdir())


def test_healing_what_is_not_there_does_nothing(tmp_path: Path) -> None:
    assert channel_folder.heal(tmp_path / "none") == []


def test_an_index_names_exactly_the_packages_that_are_there(out: Path) -> None:
    (out / "linux-64" / "torch-1-0.conda").unlink()
    make_package(out / "linux-64", "pyg", "2", "0")
    channel_folder.index(out, "linux-64")
    repodata = json.loads((out / "linux-64" / "repodata.json").read_text())
    assert sorted(repodata["packages.conda"]) == ["pyg-2-0.conda", "torch-1-1.conda"]


def test_a_linked_package_replaces_the_former_one_in_one_step(out: Path, tmp_path: Path) -> None:
    source, target = (
        out / "linux-64" / "torch-1-0.conda",
        tmp_path / "channel" / "linux-64" / "torch-1-0.conda",
    )
    target.parent.mkdir(parents=True)
    target.write_text("old")
    for _ in range(2):  # the second time it is the same file already
        channel_folder.link(source, target)
        assert target.samefile(source)
        assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Test failed", "test"),
        ("failed package content tests: No match for include glob: include/x.h", "test"),
        ("Failed to resolve dependencies", "solve"),
        ("IO Error: Script failed with status 1\nScript execution failed.", "build"),
        ("Script failed to execute", "build"),
        ("Failed to parse recipe", "other"),
    ],
)
def test_the_engine_s_sentences_are_told_apart(message: str, kind: str) -> None:
    assert kind_of(message) == kind
