"""A channel in a folder: index, permissions, and links instead of folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny import make_channel, make_package

from groundwork import channel_folder
from groundwork.errors import IntegrityError


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return make_channel(tmp_path / "out", (("torch", "1", "0"), ("torch", "1", "1")))


def test_an_index_names_exactly_the_packages_in_the_folder(out: Path) -> None:
    (out / "linux-64" / "torch-1-0.conda").unlink()
    make_package(out / "linux-64", "pyg", "2", "0")
    channel_folder.index(out, "linux-64")
    repodata = json.loads((out / "linux-64" / "repodata.json").read_text())
    assert sorted(repodata["packages.conda"]) == ["pyg-2-0.conda", "torch-1-1.conda"]


def test_an_index_changes_only_the_modes_of_a_channel(out: Path) -> None:
    program = out / "build_cache" / "staging_x" / "prefix" / "bin" / "program"
    program.parent.mkdir(parents=True)
    program.write_text("")
    program.chmod(0o750)
    (out / "linux-64" / "torch-1-0.conda").chmod(0o600)
    channel_folder.index(out, "linux-64")
    assert program.stat().st_mode & 0o777 == 0o750
    assert (out / "linux-64" / "torch-1-0.conda").stat().st_mode & 0o777 == 0o644
    assert (out / "linux-64" / "repodata.json").stat().st_mode & 0o777 == 0o644


def test_a_link_instead_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "nowhere")
    with pytest.raises(IntegrityError, match="symbolic link"):
        channel_folder.own_folder(tmp_path / "out")
