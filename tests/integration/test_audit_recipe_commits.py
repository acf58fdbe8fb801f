"""Commits that the recipes of this repository really pin, and the one of a tag that git has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from audit_site import heard
from git_world import Repo, without_settings
from msgspec import structs

from megabuild.configs.config import Config, available, load
from pin_audit.audit_report import Report, markdown
from pin_audit.facts import RecipeCommit, Scope, SourceOutcome
from pin_audit.name_map import names
from pin_audit.repositories import Repositories
from pin_audit.request import AuditRequest
from pin_audit.rows import Status
from pin_audit.services import Services
from pin_audit.sources import recipe_pins, submodules
from pin_audit.table import tabulate
from pin_audit.targets import find, target

ONE = "1234567abc" + "0" * 30
CONFIGS = ("linux_64_cpu", "linux_64_cuda130", "osx_arm64_cpu")


@pytest.fixture(scope="module")
def configs(repository: Path) -> tuple[Config, ...]:
    return tuple(load(repository, name) for name in available(repository) if name in CONFIGS)


def request(
    root: Path, configs: Sequence[Config], package: str, cache: Path, own: Path | None = None
) -> AuditRequest:
    found = target(find(package), configs, root)
    services = Services(cache, seconds=60.0)
    return AuditRequest(
        target=structs.replace(found, recipe=own or found.recipe), services=services,
        repositories=Repositories(services), configs=tuple(configs), root=root,
    )  # fmt: skip


def commits(outcome: SourceOutcome) -> list[RecipeCommit]:
    return [one for one in outcome.facts if isinstance(one, RecipeCommit)]


def test_the_real_recipes_pin_commits_by_keys_of_the_matrix(
    repository: Path, configs: tuple[Config, ...], tmp_path: Path
) -> None:
    outcome = recipe_pins.read_commits(request(repository, configs, "pyg-lib", tmp_path))
    assert outcome.trouble == ""
    found = {(one.name, one.recipe): one for one in commits(outcome)}
    assert set(found) == {("pyg-lib", "pyg-lib"), ("METIS", "pytorch_sparse")}
    for one in found.values():
        assert (one.where.file, one.holds) == ("conda_build_config.yaml", Scope())
        assert one.where.line is not None
        line = (repository / one.where.file).read_text().splitlines()[one.where.line - 1]
        assert line.strip() == f"- {one.value}"
        assert one.version == configs[0].variant["pyg_lib_version"][0]


def test_only_sources_whose_condition_holds_count(
    repository: Path, configs: tuple[Config, ...], tmp_path: Path
) -> None:
    own = tmp_path / "recipe.yaml"
    own.write_text(
        "package: {name: pyg-lib, version: '1'}\n"
        "source:\n"
        "  - if: cuda_compiler_version == 'None'\n"
        "    then:\n"
        "      - git: https://example.org/a/x.git\n"
        "        rev: ${{ pyg_lib_commit }}\n"
        "    else:\n"
        "      git: https://example.org/a/x.git\n"
        f"      rev: {ONE}\n"
        "  - git: https://token@example.org/a/z\n"
        "    tag: v1\n"
        "    target_directory: z\n"
    )
    outcome = recipe_pins.read_commits(request(repository, configs, "pyg-lib", tmp_path / "cache", own))
    ours = [one for one in commits(outcome) if one.recipe == "pyg-lib"]
    commit = configs[0].variant["pyg_lib_commit"][0]
    found = {(one.name, one.value): (one.holds.configs, one.where.file, one.where.line) for one in ours}
    assert found.pop(("x", commit))[:2] == (("linux_64_cpu", "osx_arm64_cpu"), "conda_build_config.yaml")
    assert found == {
        ("x", ONE): (("linux_64_cuda130",), "recipe.yaml", 9),
        ("z", "refs/tags/v1"): ((), "recipe.yaml", 11),
    }
    assert not [one for one in ours if "token" in str(one)]


def test_the_real_pins_are_compared_with_a_tag_from_git(
    repository: Path, configs: tuple[Config, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_settings(monkeypatch)
    asked = request(repository, configs, "pyg-lib", tmp_path / "cache")
    repo = Repo(tmp_path / "mirror.git")
    mark = repo.commits(2)
    repo.tag(asked.target.tag, mark, annotated=True)
    commit = repo.make()[mark]
    mirrored = structs.replace(asked.target, repository=f"file://{tmp_path}/mirror.git")
    asked = replace(asked, target=mirrored)
    theirs, ours = submodules.read_commit(asked), recipe_pins.read_commits(asked)
    assert [one.value for one in theirs.facts] == [commit]
    table = tabulate(asked.target, (theirs, ours), names())
    (row,) = table.rows
    assert (row.name, row.verdict.status, table.commit) == ("pyg-lib", Status.CONFLICT, commit)
    (pinned,) = (one for one in row.facts if isinstance(one, RecipeCommit))
    text = markdown(Report(made="2026-11-21T08:00:00Z", audits=(table,)))
    assert f"| pyg-lib | {commit[:10]} (tag) | {pinned.value[:10]} | | **conflict** |" in text
    gone = replace(asked, target=structs.replace(mirrored, tag="v99"))
    assert "v99" in heard(submodules.read_commit, gone).trouble
