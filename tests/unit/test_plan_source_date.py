"""Which date packages carry."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from groundwork.errors import PreflightError
from groundwork.files import OLDEST_IN_ZIP
from megabuild.plan.source_date import LATEST, source_date

DATE = 1_750_000_000


def git(root: Path, *arguments: str, date: int = DATE) -> None:
    dates = {"GIT_AUTHOR_DATE": f"{date} +0000", "GIT_COMMITTER_DATE": f"{date} +0000"}
    who = ["-c", "user.name=x", "-c", "user.email=x@x"]
    subprocess.run(["git", *who, *arguments], cwd=root, check=True, env={**os.environ, **dates})


def commit(root: Path, name: str, date: int) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(str(date))
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "x", date=date)


def found(root: Path, **environ: str) -> int:
    inherited = {key: value for key, value in os.environ.items() if key != "SOURCE_DATE_EPOCH"}
    return source_date(root, {**inherited, **environ})


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose recipe is older than its last commit."""
    root = tmp_path / "checkout"
    commit(root, "recipe/recipe.yaml", DATE)
    commit(root, "README.md", DATE + 1000)
    return root


def test_it_is_that_of_the_recipe_s_last_change_in_this_very_checkout(checkout: Path, tmp_path: Path) -> None:
    git(checkout, "worktree", "add", "-q", str(tmp_path / "another"))
    assert found(checkout) == found(tmp_path / "another") == DATE
    commit(tmp_path / "other", "recipe/recipe.yaml", DATE + 5000)
    other = str(tmp_path / "other" / ".git")
    assert found(checkout, GIT_DIR=other, GIT_WORK_TREE=str(tmp_path / "other")) == DATE
    commit(checkout, "conda_build_config.yaml", DATE + 2000)
    assert found(checkout) == DATE + 2000
    commit(tmp_path, "below/recipe/recipe.yaml", DATE)
    commit(tmp_path, "recipe/of-another", DATE + 1000)
    assert found(tmp_path / "below") == DATE


def make_evil(checkout: Path, scheme: str) -> Path:
    """Have a checkout whose last commit's tree is missing fetch it by a program of its own."""
    ran = checkout / "evil-ran"
    program = checkout / "evil.sh"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    for setting in (
        ("core.repositoryformatversion", "1"), ("extensions.partialClone", "origin"),
        ("remote.origin.url", f"{scheme}::{program}"), ("remote.origin.promisor", "true"),
        (f"protocol.{scheme}.allow", "always"),
    ):  # fmt: skip
        git(checkout, "config", *setting)
    tree = subprocess.run(
        ["git", "rev-parse", "HEAD^{tree}"], cwd=checkout, check=True, capture_output=True, text=True
    ).stdout.strip()
    (checkout / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    return ran


@pytest.mark.parametrize("owner", [os.geteuid(), 12345])
def test_nothing_of_a_repository_is_run(checkout: Path, owner: int) -> None:
    if os.geteuid() != 0 and owner == 12345:
        pytest.skip("only root can give a checkout to somebody else")
    ran = make_evil(checkout, "ext")
    for path in (checkout, *checkout.rglob("*")):
        os.chown(path, owner, owner, follow_symlinks=False)
    told = found(checkout, HOME=str(checkout))
    assert not ran.exists()
    assert told == OLDEST_IN_ZIP


@pytest.mark.parametrize("damage", ["no repository", "damaged", "no commit"])
def test_without_a_history_it_is_1980(checkout: Path, damage: str) -> None:
    if damage == "no repository":
        shutil.rmtree(checkout / ".git")
    elif damage == "damaged":
        (checkout / ".git" / "HEAD").unlink()
    else:
        shutil.rmtree(checkout / ".git")
        git(checkout, "init", "-q")
    assert found(checkout) == OLDEST_IN_ZIP


def test_the_environment_says_which(checkout: Path) -> None:
    assert found(checkout, SOURCE_DATE_EPOCH="1700000000") == 1_700_000_000
    assert found(checkout, SOURCE_DATE_EPOCH=str(LATEST)) == LATEST
    assert found(checkout, SOURCE_DATE_EPOCH="1") == OLDEST_IN_ZIP


@pytest.mark.parametrize("told", [str(LATEST + 1), "1700000000000", "-1", "yesterday", "1e9", "\u0661"])
def test_what_is_no_date_is_refused(checkout: Path, told: str) -> None:
    with pytest.raises(PreflightError, match="SOURCE_DATE_EPOCH"):
        found(checkout, SOURCE_DATE_EPOCH=told)
