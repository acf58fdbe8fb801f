"""A folder that cannot be read is an error, where its files would be taken for none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import pytest
from small_files import write

import check_staged
import gather_licences
import install_libtorch
import share_libtorch
import sync_tree
import tree_dates
import verify_package
import whole_walk
from cmake_python_swap import cmake_regenerate, python_headers, undo_folder
from cmake_python_swap import whole_walk as swap_walk
from conda_wheels import licences, wheel_tree
from gpu_tools.verify import inspected_environment
from groundwork import files
from groundwork.errors import AuditError
from groundwork.network import index
from groundwork.network.client import Answer, NetworkError, NotFound
from megabuild import cleaning
from megabuild.configs.config import check_feedstock
from megabuild.plan import fingerprint, tree_reuse
from megabuild.providers.local import package, python
from pin_audit.sources import pinning
from pyg_extensions import fetch_sources

CLOSED = "include/torch/closed"
Walk: TypeAlias = Callable[[Path], Iterator[tuple[str, list[str], list[str]]]]

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
    "headers that a swap compares": lambda torch: python_headers._state(
        cast(Any, SimpleNamespace(include=str(torch), numpy_include="", pybind11_include=""))
    ),
    "copies that undo a swap": lambda torch: undo_folder.copies(torch, "include"),
    "files that a swap would not undo": cmake_regenerate._files,
    "dates in the future": tree_dates._dated,
    "libraries that a package's test would not see": verify_package._libraries,
    "files that a wheel would lack": wheel_tree._files,
    "links out of a feedstock": files.everything_below,
    "sources that a kept wheel is made of": lambda torch: fetch_sources._hash_checkout(torch),
    "libraries that keep their RPATH": package._files_with_rpath,
}
#: The function that is written again for programs that cannot import the others.
COPIES = (files.walk, whole_walk.walk, swap_walk.walk)


@pytest.fixture
def torch(tmp_path: Path) -> Path:
    write(tmp_path / "torch" / CLOSED / "LICENSE")
    write(tmp_path / "torch/include/open.h")
    (tmp_path / "env/include").mkdir(parents=True)
    return tmp_path / "torch"


@pytest.fixture
def closed(torch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close(torch / CLOSED, monkeypatch)


def close(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a folder unreadable, for root, too."""
    scandir = os.scandir

    def refuse(path: Any = ".") -> Any:
        if not isinstance(path, int) and os.path.realpath(path) == str(folder):
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)


@pytest.mark.parametrize("walk", COPIES, ids=lambda walk: walk.__module__)
def test_each_copy_of_the_walk_does_the_same(
    walk: Walk, torch: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """As os.walk, but for folders that cannot be read."""
    (torch / "link").symlink_to("include")
    assert sorted(walk(torch)) == sorted(os.walk(torch))
    assert not list(walk(tmp_path / "missing"))
    assert not list(walk(tmp_path / "missing" / "too"))
    seen = []
    for folder, folders, _ in walk(torch):
        seen.append(folder)
        folders[:] = [name for name in folders if name != "torch"]
    assert seen == [str(torch), str(torch / "include")], "folders that are left out are not entered"
    for _, folders, _ in walk(torch):
        if "torch" in folders:  # removed by another process before it is entered
            (torch / "include/torch").rename(tmp_path / "moved")
    (tmp_path / "moved").rename(torch / "include/torch")
    with pytest.raises(NotADirectoryError):
        list(walk(torch / "include/open.h"))
    request.getfixturevalue("closed")
    with pytest.raises(PermissionError, match=CLOSED):
        list(walk(torch))


def test_files_below_a_folder_are_the_same_for_scripts(torch: Path) -> None:
    (torch / "link").symlink_to("include")
    (torch / "dangling").symlink_to("nothing")
    found = [path for path in sorted(torch.rglob("*")) if path.is_file() or path.name == "dangling"]
    assert files.below(torch) == sorted(whole_walk.below(torch)) == found


def test_the_swap_s_copy_of_the_walk_is_the_recipe_s(repository: Path) -> None:
    """The recipe's scripts and the swap, which is usable alone, search different folders for modules."""
    copy = repository / "recipe/swap/cmake_python_swap/whole_walk.py"
    assert copy.read_bytes() == (repository / "recipe/whole_walk.py").read_bytes()


def test_unreadable_pins_are_an_error_of_the_audit(torch: Path, closed: None) -> None:
    with pytest.raises(AuditError, match=CLOSED):
        pinning._from_local(torch)


def test_a_feedstock_with_an_unreadable_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have links to files outside."""
    write(tmp_path / "recipe/recipe.yaml")
    write(tmp_path / "recipe/patches/0001.patch")
    check_feedstock(tmp_path)
    close(tmp_path / "recipe/patches", monkeypatch)
    with pytest.raises(PermissionError, match="patches"):
        check_feedstock(tmp_path)


@pytest.mark.parametrize("place", ["info/licenses", "site-packages/torch-1.dist-info"])
def test_licences_that_a_wheel_would_lack(place: str, torch: Path, closed: None) -> None:
    folder = torch.parent / "package" / place
    folder.parent.mkdir(parents=True)
    folder.symlink_to(torch / CLOSED)
    with pytest.raises(PermissionError):
        licences.of_package("torch", torch.parent / "package")


def test_libraries_that_cannot_be_listed_are_damage(torch: Path, closed: None) -> None:
    """An environment without the extension's libraries would be a fault of the extension."""
    found = object.__new__(inspected_environment._Environment)
    site = torch / "include"
    vars(found).update(_prefix=torch, _site=site, _elsewhere=[], _user_libraries=[], damaged=[])
    found.find_libraries()
    (damage,) = found.damaged
    assert (damage.path, damage.module) == ("include/torch", "torch")
    assert CLOSED in damage.reason


def test_a_folder_of_wheels_that_cannot_be_read_is_no_empty_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = index.Configured(links=(str(tmp_path),))
    with pytest.raises(NotFound):
        index.offered("torch", where, unexpected)
    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(NetworkError, match="cannot be read: Permission denied") as caught:
        index.offered("torch", where, unexpected)
    assert not isinstance(caught.value, NotFound)


def test_channels_stay_while_packages_that_may_need_them_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "output/packages").mkdir(parents=True)
    assert cleaning._find_needed(tmp_path / "output", tmp_path / "cache") == {}
    monkeypatch.setattr(Path, "iterdir", refused)
    needed = cleaning._find_needed(tmp_path / "output", tmp_path / "cache")
    assert needed == {
        "": f"packages in {tmp_path}/output may need it, but cannot be listed: Permission denied"
    }


def refused(folder: Path) -> Iterator[Path]:
    raise PermissionError(13, "Permission denied", str(folder))


def unexpected(address: str) -> Answer:
    raise AssertionError(address)


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
    for name, owned in records.items():
        listed = ", ".join(f'"{file}"' for file in owned)
        write(tmp_path / f"conda-meta/{name}.json", f'{{"name": "{name}", "files": [{listed}]}}')
    command = [sys.executable, str(repository / "recipe/tests/one_owner.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
