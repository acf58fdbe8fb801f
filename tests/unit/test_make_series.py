"""contrib/make_series.py without the feedstock: what it refuses, and that the patches know what they bring along.

With a clone, tests/integration/test_feedstock_series.py applies the series and runs it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


def make(repository: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(repository / "contrib" / "make_series.py"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A repository in whose recipe nothing of the feedstock's is."""
    folder = tmp_path / "other"
    (folder / "recipe").mkdir(parents=True)
    (folder / "recipe" / "build.sh").write_text("make\n")
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@localhost"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "one"], check=True)
    return folder


def test_what_is_no_clone_is_told_where_there_is_one(repository: Path, tmp_path: Path) -> None:
    done = make(repository, tmp_path, "--output", tmp_path / "series")
    assert done.returncode == 1
    assert (
        "has no commit HEAD: name a clone of https://github.com/conda-forge/pytorch-cpu-feedstock"
        in done.stderr
    )
    assert not (tmp_path / "series").exists()


def test_a_patch_that_does_not_apply_is_named_and_nothing_is_written(
    repository: Path, other: Path, tmp_path: Path
) -> None:
    done = make(repository, other, "--output", tmp_path / "series")
    assert done.returncode == 1
    assert (
        "0001-swap-the-Python-by-name.patch does not apply (recipe/README.md: does not exist" in done.stderr
    )
    assert "with --ref" in done.stderr
    assert not (tmp_path / "series").exists()
    status = subprocess.run(["git", "-C", other, "status", "--short"], capture_output=True, check=True)
    assert status.stdout == b"", "the clone is only read"


def test_a_ref_is_never_taken_for_an_option(repository: Path, other: Path, tmp_path: Path) -> None:
    done = make(repository, other, "--ref=--all", "--output", tmp_path / "series")
    assert (done.returncode, "has no commit --all" in done.stderr) == (1, True)


def test_a_folder_that_holds_something_is_not_written_to(
    repository: Path, other: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").write_text("")
    done = make(repository, other, "--output", tmp_path)
    assert (done.returncode, "holds something already" in done.stderr) == (1, True)


def test_the_patches_call_what_the_swap_has_and_name_what_is_brought_along(repository: Path) -> None:
    patches = sorted((repository / "contrib" / "pytorch-cpu-feedstock").glob("*.patch"))
    assert [patch.name[:4] for patch in patches] == ["0001", "0002", "0003"]
    added = ["\n".join(re.findall(r"^\+(.*)", patch.read_text(), re.MULTILINE)) for patch in patches]
    command = [sys.executable, str(repository / "recipe" / "swap" / "cmake_python_swap"), "--help"]
    known = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    called = set(re.findall(r'cmake_python_swap" (\w+)', added[0])) | set(
        re.findall(r"^ +swap (\w+)", added[2], re.MULTILINE)
    )
    assert called == {"apply", "configure", "wheel"}
    assert all(re.search(rf"^ +{command}\b", known, re.MULTILINE) for command in called)
    assert "patches/0024-Build-the-linear-algebra-library-in-two-flavours.patch" in added[1]
