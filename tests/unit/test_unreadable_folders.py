"""A folder that cannot be read is an error, where its files would be taken for none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from small_files import write

import check_staged
import gather_licences
import install_libtorch
import share_libtorch
import sync_tree
from megabuild.plan import fingerprint, tree_reuse
from megabuild.providers.local import python

CLOSED = "include/torch/closed"

WALKS: dict[str, Callable[[Path], Iterable[object]]] = {
    "a sync, which would remove its files from the tree": sync_tree.source_entries,
    "licences that a package would lack": gather_licences.texts,
    "headers that libtorch would lack": install_libtorch.libtorch_files,
    "headers that pytorch would own, too": lambda torch: share_libtorch.shared(torch, torch.parent / "env"),
    "headers that libtorch has not": lambda torch: [
        share_libtorch.owned(torch / "include", torch / "include")
    ],
    "scripts that download": check_staged.downloads,
    "sources that a fingerprint would lack": lambda torch: [fingerprint.tree(torch)],
    "files that a power cut may have emptied": tree_reuse._files_below,
    "modules of a packaged Python": python._files,
}


@pytest.fixture
def torch(tmp_path: Path) -> Path:
    write(tmp_path / "torch" / CLOSED / "LICENSE")
    write(tmp_path / "torch/include/open.h")
    (tmp_path / "env/include").mkdir(parents=True)
    return tmp_path / "torch"


@pytest.fixture
def closed(torch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def refuse(path: Any = ".") -> Any:
        if str(path) == str(torch / CLOSED):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)


@pytest.mark.parametrize("walk", WALKS)
def test_an_unreadable_folder_is_named(walk: str, torch: Path, closed: None) -> None:
    with pytest.raises(PermissionError, match=CLOSED):
        list(WALKS[walk](torch))


@pytest.mark.parametrize("walk", WALKS)
def test_a_readable_one_is_walked_through(walk: str, torch: Path) -> None:
    list(WALKS[walk](torch))


def test_a_source_in_an_unreadable_folder_stays_in_the_tree(
    torch: Path, tmp_path: Path, request: Any
) -> None:
    sync_tree.sync(torch, tmp_path / "tree")
    request.getfixturevalue("closed")
    with pytest.raises(PermissionError):
        sync_tree.sync(torch, tmp_path / "tree")
    assert (tmp_path / "tree" / CLOSED / "LICENSE").exists()


def test_a_tree_without_libraries_is_not_taken_for_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_staged.main(["libraries", str(tmp_path / "torch"), str(tmp_path / "env")]) == 1
    assert f"{tmp_path}/torch has no library: was the tree built?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ({}, 1),
        ({"other": ["a"]}, 1),
        ({"pytorch": ["a", "b"], "other": ["c"]}, 0),
        ({"pytorch": ["a"], "libtorch": ["a"]}, 1),
        ({"pytorch": ["a"], "other": ["b"], "more": ["b"]}, 0),
    ],
)
def test_only_an_environment_with_files_of_ours_can_have_one_owner_each(
    records: dict[str, list[str]], code: int, repository: Path, tmp_path: Path
) -> None:
    for name, files in records.items():
        listed = ", ".join(f'"{file}"' for file in files)
        write(tmp_path / f"conda-meta/{name}.json", f'{{"name": "{name}", "files": [{listed}]}}')
    command = [sys.executable, str(repository / "recipe/tests/one_owner.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
