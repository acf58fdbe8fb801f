"""Upstream's files in a folder of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundwork.errors import AuditError
from pin_audit.trees import LocalTree


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files, links and git's own."""
    top = tmp_path / "top"
    for name in ("b/c.txt", "a.txt", ".ci/x.sh", ".git/config", "sub/.git"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(name)
    (tmp_path / "secret").write_text("secret")
    (top / "link").symlink_to(tmp_path / "secret")
    (top / "linked").symlink_to(tmp_path)
    return top


def test_regular_files_are_listed_in_order(folder: Path) -> None:
    assert LocalTree(folder).names() == [".ci/x.sh", "a.txt", "b/c.txt"]


def test_only_files_inside_are_read(folder: Path) -> None:
    wanted = [
        "a.txt",
        "b/c.txt",
        "none",
        "b",
        "../secret",
        "link",
        "linked/secret",
        ".git/config",
        "/etc/passwd",
        "",
    ]
    assert LocalTree(folder).read(wanted) == {"a.txt": b"a.txt", "b/c.txt": b"b/c.txt"}


def test_it_names_neither_commit_nor_page(folder: Path) -> None:
    assert (LocalTree(folder).commit, LocalTree(folder).url("a.txt", 3)) == ("", "")


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="is not a folder"):
        LocalTree(tmp_path / "none")
