"""Commits that recipes pin, held against those of upstream's tag and of its submodules."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import git_world
import pytest
from audit_samples import asks, audit, has

from groundwork.errors import AuditError
from pin_audit import repositories
from pin_audit.cells import cells
from pin_audit.facts import AnyFact, Column, Newest, RecipeCommit, Submodule, TagCommit
from pin_audit.repositories import Repository
from pin_audit.request import AuditRequest
from pin_audit.rows import AuditRow
from pin_audit.services import Services
from pin_audit.sources import submodules
from pin_audit.statuses import Status

ONE, OTHER = "1234567abc" + "0" * 30, "fedcba9876" + "0" * 30
PYG, METIS = "https://github.com/pyg-team/pyg-lib.git", "https://github.com/KarypisLab/METIS.git"
TAG = TagCommit(name="pyg-lib", value=ONE)


def pins(commit: str, address: str = PYG, whose: str = "pyg-lib", *, version: str = "2.13.0") -> RecipeCommit:
    """A recipe's commit, where this repository builds some version of what is audited."""
    name = address.rpartition("/")[2].removesuffix(".git")
    return RecipeCommit(name=name, value=commit, address=address, recipe=whose, version=version)


def vendors(commit: str, url: str = METIS, value: str = "v5.1.1-7-gabc", trouble: str = "") -> Submodule:
    return Submodule(name="third_party/METIS", value=value, commit=commit, address=url, trouble=trouble)


def rows(*facts: AnyFact, package: str = "pyg-lib", **troubles: str) -> dict[str, AuditRow]:
    return {row.name: row for row in audit(*facts, package=package, troubles=troubles).rows}


@pytest.mark.parametrize(("revision", "built", "status"), [
    (ONE, "2.13.0", Status.IN_STEP), (ONE[:8].upper(), "2.13.0", Status.IN_STEP),
    ("refs/tags/v2.13.0", "2.13.0", Status.IN_STEP), (OTHER, "2.13.0", Status.CONFLICT), (OTHER, "", Status.CONFLICT),
    # of another version a commit is as old as that
    (OTHER, "2.12.1", Status.OLDER), (OTHER, "2.14.0", Status.NEWER),
    # what may become another commit
    ("refs/heads/main", "2.13.0", Status.MISSING), ("", "2.13.0", Status.MISSING),
    ("refs/tags/v2.12.0", "2.13.0", Status.MISSING),
])  # fmt: skip
def test_a_recipes_commit_is_held_against_the_tags(revision: str, built: str, status: Status) -> None:
    row = rows(TAG, pins(revision, version=built))["pyg-lib"]
    assert row.verdict.status is status
    assert "1234567abc" in [part.text for part in cells(row)[Column.UPSTREAM]]
    of_another = rows(TAG, pins(revision, whose="pytorch_sparse", version=built))["pyg-lib"]
    assert of_another.verdict.status is status


@pytest.mark.parametrize(
    ("address", "name", "source", "status_if_read"),
    [
        (PYG, "pyg-lib", "upstream_commit", Status.UNKNOWN),
        (METIS, "metis", "submodules", Status.UNPINNED),
    ],
)
def test_a_commit_is_unknown_as_long_as_upstreams_was_not_read(
    address: str, name: str, source: str, status_if_read: Status
) -> None:
    """Of the tag, and of a library that upstream may vendor."""
    pinned = pins(ONE, address, "pyg-lib")
    assert rows(pinned)[name].verdict.status is status_if_read
    unread = rows(pinned, **{source: "no answer"})[name].verdict
    assert (unread.status, "not read" in unread.sentence) == (Status.UNKNOWN, True)


@pytest.mark.parametrize(
    "address", [METIS, "git@github.com:karypislab/METIS", "https://github.com/KarypisLab/METIS/"]
)
@pytest.mark.parametrize("value", ["v5.1.1-7-gabc", ""])
def test_another_recipes_commit_is_held_against_the_submodule_of_that_repository(
    address: str, value: str
) -> None:
    submodule = vendors(ONE, address, value, trouble="" if value else "no answer")
    same = rows(submodule, pins(ONE, METIS, "pytorch_sparse"))["metis"]
    apart = rows(submodule, pins(OTHER, METIS, "pytorch_sparse"))["metis"]
    assert all(name in same.verdict.sentence for name in ("pytorch_sparse", "1234567abc")) or not value
    assert apart.verdict.status is Status.CONFLICT
    tag = rows(submodule, pins("refs/tags/v2.13.0", METIS, "pytorch_sparse"))["metis"]
    assert tag.verdict.status is Status.MISSING, "the tag is another repository's"
    assert [part.remark for part in cells(same)[Column.RECIPE]] == ["[pytorch_sparse]"]
    assert not same.vendored_only


def test_a_commit_is_held_against_the_copy_from_its_own_repository() -> None:
    copy, fork = (
        Submodule(name=f"{folder}/lib", value="v1", commit=commit, address=f"https://github.com/{owner}/lib")
        for folder, commit, owner in (("third_party", ONE, "owner"), ("external", OTHER, "fork"))
    )
    found = [
        rows(copy, fork, pins(OTHER, one.address, "pyg-lib"))["lib"].verdict.status for one in (copy, fork)
    ]
    assert found == [Status.CONFLICT, Status.IN_STEP]


@pytest.mark.parametrize(("commit", "required", "status"), [
    (ONE, "3.8.*", Status.IN_STEP), (ONE, "3.7.*", Status.OLDER), (OTHER, "3.8.*", Status.CONFLICT),
])  # fmt: skip
def test_a_row_with_a_commit_and_a_version_has_the_gravest_verdict_on_both(
    commit: str, required: str, status: Status
) -> None:
    address = "https://github.com/shibatch/sleef"
    copy = Submodule(name="third_party/sleef", value="3.8", commit=ONE, address=address)
    row = rows(copy, pins(commit, address, "pytorch"), asks("sleef", required), package="pytorch")["sleef"]
    assert row.verdict.status is status, row.verdict.sentence


def test_a_commit_of_a_library_that_upstream_does_not_vendor_is_shown_with_its_own_recipe_only() -> None:
    newest = has("metis", "5.1.0")
    found = rows(pins(ONE, METIS, "pytorch_sparse"), newest, package="pytorch_sparse")
    assert found["metis"].verdict.status is Status.UNPINNED
    assert any(isinstance(one, Newest) for one in found["metis"].facts)
    assert rows(pins(ONE, METIS, "pytorch_sparse"), package="pytorch_cluster") == {}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("the commit", r"commit [0-9a-f]{12} no longer exists$"),
        ("the server", r"commit [0-9a-f]{12} cannot be fetched: .*does not (appear to be a git repository|exist)"),
        ("the network", r"commit [0-9a-f]{12} cannot be fetched: not in the cache, and --offline forbids downloads$"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_commit_that_cannot_be_asked_for_is_not_one_that_is_gone(
    fault: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No branch has the commit, as after a rebase; servers still have it."""
    git_world.without_settings(monkeypatch)
    repo = git_world.Repo(tmp_path / "repo")
    repo.tag("v1", repo.commit())
    repo.commit("topic")
    commits = repo.make()
    git_world.git("update-ref", "-d", "refs/heads/topic", cwd=repo.path)
    repository = Repository(f"file://{repo.path}", Services(tmp_path / "cache"), "")
    repository.update()
    wanted = commits[2]
    if fault == "the commit":
        wanted = "1234567abc" + "0" * 30
    elif fault == "the server":
        shutil.rmtree(repo.path)
    elif fault == "the network":
        monkeypatch.setattr(repository, "_offline", True)
    if not fault:
        assert repository.describe(wanted) == wanted[:7]
        return
    with pytest.raises(AuditError, match=reason):
        repository.describe(wanted)
    if fault == "the network":
        with pytest.raises(AuditError, match=r"^not in the cache, and --offline"):
            repository.listing(commits[1])


@pytest.mark.parametrize("known", [("", "v1"), ("https://a/b", ""), ("", ""), ("https://a/b", "v1")])
def test_an_audit_needs_upstream_s_repository_and_tag(known: Sequence[str]) -> None:
    repository, tag = known
    request = SimpleNamespace(
        target=SimpleNamespace(package="x", repository=repository, tag=tag),
        repositories=SimpleNamespace(open=lambda *asked: asked),
    )
    if all(known):
        assert AuditRequest.repository(cast(Any, request)) == cast(Any, known)
        return
    with pytest.raises(AuditError, match="names no upstream repository and tag"):
        AuditRequest.repository(cast(Any, request))


def test_a_clone_is_shared_only_for_one_address_and_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git_world.without_settings(monkeypatch)
    monkeypatch.setattr(repositories.Repository, "update", lambda _: None)
    opened = repositories.Repositories(Services(tmp_path))
    asked = [(f"https://github.com/a/{name}", only) for name in "bc" for only in ("", "v1", "v2")]
    clones = [opened.open(address, only) for address, only in asked]
    assert len({id(clone) for clone in clones}) == len(asked)
    assert [opened.open(address, only) for address, only in asked] == clones


@pytest.mark.parametrize("trouble", ["", "no answer"])
def test_a_clone_is_updated_once_in_an_audit(
    trouble: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = Repository(METIS, Services(tmp_path), "")
    answers = [trouble]
    monkeypatch.setattr(clone, "_try_update", answers.pop)
    for _ in range(2):
        with pytest.raises(AuditError, match=trouble) if trouble else nullcontext():
            clone.update()


@pytest.mark.parametrize(("address", "hours", "is_young"), [
    (METIS, 1, True), (METIS, 25, False), ("file:///a/b", 1, False),
    (METIS, -1, False),  # a clock that was wrong
])  # fmt: skip
def test_a_clone_is_used_without_an_update_for_a_day(
    address: str, hours: int, is_young: bool, tmp_path: Path
) -> None:
    clone = Repository(address, Services(tmp_path), "")
    fetched = datetime.now(timezone.utc) - timedelta(hours=hours)
    clone.fetched = fetched.isoformat(timespec="seconds")
    assert clone._is_young() is is_young


@pytest.mark.parametrize("login", ["user:p%40ss@", ""])
def test_git_gets_a_password_in_its_environment_only(
    login: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All users of a machine see a program's arguments; a clone's name is the same with and without a login."""
    asked: list[Sequence[str]] = []
    environ: dict[str, str] = {}

    def run_git(_: Path, *words: str, seconds: float, **variables: str) -> str:
        asked.append(words)
        environ.update(variables)
        return ""

    monkeypatch.setattr(repositories, "run_git", run_git)
    clone = Repository(f"https://{login}github.com/a/b.git", Services(tmp_path), "")
    clone._git("fetch", "origin", fetches=True)
    assert "remote.origin.url=https://github.com/a/b.git" in asked[0]
    assert not [word for word in asked[0] if "p%40ss" in word or "p@ss" in word]
    assert [environ["AUDIT_USER"], environ["AUDIT_PASSWORD"]] == (["user", "p@ss"] if login else ["", ""])
    assert clone.clone == Repository("https://github.com/a/b.git", Services(tmp_path), "").clone


@pytest.mark.parametrize(("address", "offline", "is_asked"), [
    (METIS, False, True), (METIS, True, False), ("file:///a/b", True, True), ("file:///a/b", False, True),
])  # fmt: skip
def test_offline_only_repositories_of_this_machine_are_asked(
    address: str, offline: bool, is_asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocols: list[str] = []

    def run_git(*_: object, **environ: str) -> str:
        protocols.append(environ.get("GIT_ALLOW_PROTOCOL", "none"))
        return ""

    monkeypatch.setattr(repositories, "run_git", run_git)
    Repository(address, Services(tmp_path, offline=offline), "")._git("fetch", fetches=True)
    assert (protocols != ["none"]) is is_asked


@pytest.mark.parametrize(("address", "page"), [
    ("https://github.com/a/b.git", "https://github.com/a/b/blob/{}/c.py"),
    ("https://gitlab.example.org/a/b", "https://gitlab.example.org/a/b/-/blob/{}/c.py"),
    ("https://example.org/a/b.git", ""), ("file:///a/b", ""),
])  # fmt: skip
def test_a_page_of_a_file_is_of_the_commit_that_has_it(address: str, page: str, tmp_path: Path) -> None:
    clone = Repository(address, Services(tmp_path), "v1")
    clone.__dict__["commit"] = ONE  # of its tag
    assert clone.url("c.py") == page.format(ONE)
    assert clone.url("c.py", 7, OTHER) == (page and f"{page.format(OTHER)}#L7")


@pytest.mark.parametrize(("mode", "is_file"), [
    ("100644", True), ("100755", True), ("120000", False), ("160000", False), ("040000", False),
])  # fmt: skip
def test_links_and_submodules_of_a_commit_are_no_files(mode: str, is_file: bool) -> None:
    assert repositories.TreeEntry(mode, ONE).is_regular is is_file


def test_each_submodule_is_found_at_its_line() -> None:
    modules = submodules.parse_modules(git_world.modules({"a": "../a", "b": "../b"}))
    assert {path: module.line for path, module in modules.items()} == {"a": 1, "b": 4}


def test_entries_that_git_ignores_declare_no_submodule() -> None:
    text = (
        '[submodule "a"]\n\tPath = a\n\tURL = ../a\n[submodule "b/../../c"]\n\tpath = c\n\turl = ../c\n'
        '[submodule "d"]\n\tpath = -d\n\turl = ../d\n[submodule "e"]\n\turl = ../e\n[core]\n\tpath = f\n'
    )
    found = submodules.parse_modules(text.encode())
    assert {path: module.url for path, module in found.items()} == {"a": "../a"}


def test_a_relative_submodule_is_asked_for_with_its_parent_s_login_which_no_fact_has() -> None:
    given = "https://user:secret@host.example/o/top.git"
    parents: list[str] = []

    def open_repository(_: str, parent: str) -> SimpleNamespace:
        parents.append(parent)
        return SimpleNamespace(describe=lambda _: "v1")

    top = SimpleNamespace(
        given=given, address="https://host.example/o/top.git", url=lambda *_: "", fetched=""
    )
    declared = {"lib": submodules.DeclaredModule(url="../lib.git", update="none")}
    parent = submodules.ParentRepository(
        chain=(), repository=cast(Any, top), commit=ONE, gitlinks={"lib": OTHER}, declared=declared
    )
    opened = SimpleNamespace(services=SimpleNamespace(report=print), open=open_repository)
    found = submodules._look_up(submodules.Link(parent=parent, path="lib"), cast(Any, opened))
    assert parents == [given]
    assert (found.fact.value, found.fact.trouble) == ("v1", "")
    assert found.fact.address.endswith("host.example/o/lib.git")
    assert "secret" not in found.fact.address


@pytest.mark.parametrize("is_left_out", [True, False])
def test_submodules_of_a_submodule_are_listed_unless_git_leaves_it_out(
    is_left_out: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``update = none`` leaves it out; a submodule without an address is told."""
    git_world.without_settings(monkeypatch)
    inner = git_world.Repo(tmp_path / "inner.git")
    inner.tag("inner-0", inner.commit(), annotated=True)
    inner.tag("inner-1", inner.commit())
    commit = inner.make()[2]
    middle = git_world.Repo(tmp_path / "middle.git")
    entries = git_world.modules({"inner": "../inner.git", "lost": None})
    middle.commit(files={".gitmodules": entries}, gitlinks={"inner": commit, "lost": commit})
    commit = middle.make()[1]
    top = git_world.Repo(tmp_path / "top.git")
    entries = git_world.modules({"middle": "../middle.git"})
    if is_left_out:
        entries += b"\tupdate = none\n"
    top.tag("v1", top.commit(files={".gitmodules": entries}, gitlinks={"middle": commit}))
    top.make()
    opened = repositories.Repositories(Services(tmp_path / "cache"))
    request = SimpleNamespace(
        repository=lambda: opened.open(f"file://{top.path}", only="v1"), repositories=opened
    )
    found = {fact.name: fact for fact in cast(Any, submodules.read(cast(Any, request)).facts)}
    assert {*found} == ({"middle"} if is_left_out else {"middle", "middle/inner", "middle/lost"})
    if not is_left_out:
        assert found["middle/inner"].value == "inner-1"
        assert found["middle/lost"].trouble == ".gitmodules: no address for this submodule"
