"""Submodules described without cloning them, against git's own words on the same repositories."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from git_world import Repo, daemon, git, modules, status, without_settings
from submodule_world import World, audit, build, described, finding, pair, target

from pin_audit.facts import Submodule
from pin_audit.make_report import AuditOptions, make
from pin_audit.request import AuditRequest, Local
from pin_audit.services import Services
from pin_audit.sources import submodules
from pin_audit.trees import GitTree, open_tree


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's."""
    without_settings(monkeypatch)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return build(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def truth(world: World, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What git says."""
    url = f"file://{world.folder}/super.git"
    return status(url, "v1", tmp_path_factory.mktemp("truth"), world.good)


@pytest.fixture(params=["file", "git", "no filters"])
def served(request: pytest.FixtureRequest, world: World) -> Iterator[str]:
    """The superproject's address on servers of different abilities."""
    if request.param == "file":
        yield f"file://{world.folder}/super.git"
        return
    settings = ("uploadpack.allowFilter=false",) if request.param == "no filters" else ()
    with daemon(world.folder, *settings) as base:
        yield f"{base}super.git"


def test_every_form_of_description_occurs(truth: Mapping[str, str]) -> None:
    forms = {path: text.partition(" ")[2] for path, text in truth.items()}
    assert forms["lib/several"] == "b-late"
    assert forms["lib/after"].startswith("v1.0-4-g")
    assert forms["lib/exact"].startswith("v0.1-2-g")
    assert "~" in forms["lib/before"]
    assert "^2" in forms["lib/before"]
    assert forms["lib/tip"] == "heads/main"
    assert forms["lib/branch"].startswith("remotes/origin/old/line-1-g")
    assert len(forms["lib/behind"]) == 7
    assert forms["lib/deep"].startswith("v0.1-1300-g")
    assert forms["lib/wide"].startswith("v0.9-407-g")
    assert len(forms["lib/large"].partition("-g")[2]) == 8  # for so many objects; the audit keeps to seven
    assert "lib/outer/inner/deps/leaf" in forms


def test_descriptions_and_their_order_are_git_s_own_but_for_branches(
    served: str, truth: Mapping[str, str], tmp_path: Path
) -> None:
    outcome = audit(served, tmp_path)
    assert outcome.trouble == ""
    assert [(one.name, one.trouble) for one in outcome.facts if one.trouble] == []
    found = described(outcome)
    assert found.pop("lib/large") == truth["lib/large"][:-1]
    by_tags = {
        path: re.sub(r"^((.{7}).*) (heads|remotes)/.*", r"\1 \2", text) for path, text in truth.items()
    }
    assert list(found.items()) == [(path, text) for path, text in by_tags.items() if path != "lib/large"]


@pytest.mark.parametrize(("name", "tag"), [("super", "v1"), ("outer", "out-1"), ("third", "2024.1")])
def test_another_project_is_audited_by_address_and_tag(
    name: str, tag: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nested submodules, without any recipe, against ``git submodule status --recursive``."""
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))
    url = f"file://{world.folder}/{name}.git"
    options = AuditOptions(upstream=url, ref=tag, only=("submodules",))
    (made,) = make(options, tmp_path)[0].audits
    assert (made.target.package, made.target.tag, made.target.recipe) == (name, tag, None)
    good = world.good if name == "super" else (".",)
    said = {path: text.split()[0] for path, text in status(url, tag, tmp_path, good).items()}
    found = {one.name: one.commit for one in made.outcomes[0].facts if isinstance(one, Submodule)}
    assert said
    assert said.items() <= found.items()
    assert {one for row in made.rows for one in row.all(Submodule)}


def test_pushing_a_branch_changes_no_description(tmp_path: Path) -> None:
    repo = Repo(tmp_path / "lib.git")
    repo.commits(3)
    both = pair(tmp_path, repo, 2)
    first = audit(both.url, tmp_path / "cache")
    git("update-ref", "refs/heads/aaa", both.made[2], cwd=both.lib)
    again = audit(both.url, tmp_path / "cache", max_age=-1.0)
    assert described(again) == described(first) == {"lib": f"{both.made[2]} {both.made[2][:7]}"}
    assert finding(again, "lib").day == "2020-09-13"


@pytest.mark.parametrize(
    "setting",
    ["uploadpackfilter.tree.maxDepth=0", "uploadpackfilter.tree.allow=false", "uploadpack.allowFilter=false"],
)
def test_what_the_server_refuses_is_fetched_in_another_way(
    world: World, tmp_path: Path, setting: str
) -> None:
    with daemon(world.folder, setting) as base:
        outcome = audit(f"{base}outer.git", tmp_path, tag="out-1")
    assert [one.trouble for one in outcome.facts] == ["", "", ""]


def test_a_cache_folder_may_be_relative(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = audit(f"file://{world.folder}/outer.git", Path("cache"), tag="out-1")
    assert len(described(outcome)) == 3
    assert list((tmp_path / "cache" / "git").glob("outer-*.git"))


def test_a_second_run_needs_no_server(world: World, tmp_path: Path) -> None:
    with daemon(world.folder) as base:
        first = audit(f"{base}outer.git", tmp_path, tag="out-1")
        again = audit(f"{base}outer.git", tmp_path, tag="out-1")
    offline = audit(f"{base}outer.git", tmp_path, tag="out-1", offline=True)
    assert len(described(first)) == 3
    assert described(first) == described(again) == described(offline)


def test_what_cannot_be_described_says_why(tmp_path: Path) -> None:
    repo = Repo(tmp_path / "lib.git")
    repo.commits(2)
    repo.make()
    bad = {"gone": "1" * 40, "without-url": "2" * 40, "undeclared": "3" * 40, "wanders": "4" * 40}
    texts = modules({"gone": "../lib.git", "without-url": None, "wanders": "../nowhere.git"})
    top = Repo(tmp_path / "super.git")
    top.tag("v1", top.commit(files={".gitmodules": texts}, gitlinks=bad))
    top.make()
    outcome = audit(f"file://{tmp_path}/super.git", tmp_path / "cache")
    assert "does not have commit 111111111111 any more" in finding(outcome, "gone").trouble
    assert "gives it no URL" in finding(outcome, "without-url").trouble
    assert "does not mention it" in finding(outcome, "undeclared").trouble
    assert "does not appear to be a git repository" in finding(outcome, "wanders").trouble
    assert finding(outcome, "undeclared").commit == "3" * 40
    assert described(outcome) == {}


def test_a_missing_tag_is_a_sentence(world: World, tmp_path: Path) -> None:
    outcome = audit(f"file://{world.folder}/super.git", tmp_path, tag="v99")
    assert outcome.facts == ()
    assert "super has no tag v99" in outcome.trouble


def test_a_moved_tag_is_followed(tmp_path: Path) -> None:
    repo = Repo(tmp_path / "lib.git")
    repo.tag("v1", repo.commits(2), annotated=True)
    repo.commits(1)
    both = pair(tmp_path, repo, 3)
    retag = ["-c", "user.name=T", "-c", "user.email=t@example.org", "tag", "-fam", "m", "v1"]
    with daemon(tmp_path) as base:
        url, local = f"{base}super.git", both.truth()
        assert described(audit(url, tmp_path / "a")) == described(audit(both.url, tmp_path / "b")) == local
        git(*retag, both.made[3], cwd=both.lib)
        moved = both.truth()
        assert moved != local
        assert described(audit(url, tmp_path / "a")) == local  # young enough
        assert described(audit(url, tmp_path / "a", max_age=-1.0)) == moved
        assert described(audit(both.url, tmp_path / "b")) == moved  # of this machine: never too old


def test_a_shallow_mirror_gives_what_its_clone_would_say(tmp_path: Path) -> None:
    repo = Repo(tmp_path / "lib.git")
    repo.tag("v1", repo.commits(2), annotated=True)
    both = pair(tmp_path, repo, repo.commits(6) - 1)
    both.lib.rename(tmp_path / "whole.git")
    words = ["clone", "--quiet", "--bare", "--depth=3", f"file://{tmp_path}/whole.git", str(both.lib)]
    git(*words, cwd=tmp_path)
    outcome = audit(both.url, tmp_path / "cache")
    assert described(outcome) == both.truth() == {"lib": f"{both.made[7]} {both.made[7][:7]}"}


def test_a_local_folder_of_files_does_not_hide_the_submodules(world: World, tmp_path: Path) -> None:
    wanted = target(f"file://{world.folder}/outer.git", "out-1")
    outcome = submodules.read(
        AuditRequest(
            target=wanted,
            services=Services(tmp_path / "cache"),
            repository=lambda: open_tree(wanted, Services(tmp_path / "cache")),
            configs=(),
            root=tmp_path,
            local=Local(tree=tmp_path),
        )
    )
    assert "inner" in described(outcome)


def test_the_tree_reads_many_files_with_one_request(world: World, tmp_path: Path) -> None:
    with daemon(world.folder) as base:
        tree = open_tree(target(f"{base}large.git"), Services(tmp_path / "cache"))
        assert isinstance(tree, GitTree)
        assert len(tree.names()) == 17_001
        wanted = ["d1/1", "d2/2", "d3/3", "no such file"]
        assert tree.read(wanted) == {"d1/1": b"1", "d2/2": b"2", "d3/3": b"3"}
    assert tree.read(["d2/2"]) == {"d2/2": b"2"}  # kept


_MIRRORS = os.environ.get("MEGABUILD_MIRRORS", "")


@pytest.mark.slow
@pytest.mark.skipif(
    not _MIRRORS, reason="set MEGABUILD_MIRRORS to a folder with pyg-team/pyg-lib.git and the others"
)
def test_real_submodules_of_pyg_lib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with daemon(
        Path(_MIRRORS).absolute(), "uploadpack.allowFilter=true", "uploadpack.allowAnySHA1InWant=true"
    ) as base:
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.{base}.insteadOf")
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://github.com/")
        outcome = audit("https://github.com/pyg-team/pyg-lib.git", tmp_path, tag="0.1.0")
    assert {one.name: one.value for one in outcome.facts} == {
        "third_party/cutlass": "v2.9.0-15-g858c735",
        "third_party/parallel-hashmap": "1.35",
    }
