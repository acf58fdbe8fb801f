"""What the recipes ask for, and where: on the real recipes of this repository, and a tag that git has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from audit_site import heard
from git_world import Repo, without_settings
from msgspec import structs

from groundwork.errors import UsageError
from megabuild.configs.config import Config, available, load
from pin_audit.audit_report import Report, markdown
from pin_audit.facts import AnyFact, RecipeArchs, RecipeCommit, RecipePin, Scope, SourceOutcome
from pin_audit.name_map import names
from pin_audit.recipe_lines import Line, names_in, place, requirement_lines
from pin_audit.repositories import Repositories
from pin_audit.request import AuditRequest
from pin_audit.services import Services
from pin_audit.sources import recipe_pins, submodules
from pin_audit.statuses import Status
from pin_audit.table import tabulate
from pin_audit.targets import find, target

NARROW = ("linux_64_cpu", "linux_64_cuda129", "linux_64_cuda130", "osx_arm64_cpu")
ONE = "1234567abc" + "0" * 30


@pytest.fixture(scope="module")
def configs(repository: Path) -> tuple[Config, ...]:
    return tuple(load(repository, name) for name in available(repository))


def ask(
    repository: Path,
    configs: tuple[Config, ...],
    package: str,
    cache: Path,
    only: tuple[str, ...] = NARROW,
    own: Path | None = None,
) -> AuditRequest:
    """Return a request about a package in some configs, with its recipe or another one."""
    chosen = tuple(config for config in configs if config.name in only)
    found, services = target(find(package), chosen, repository), Services(cache)
    return AuditRequest(
        target=structs.replace(found, recipe=own or found.recipe), services=services,
        repositories=Repositories(services), configs=chosen, root=repository,
    )  # fmt: skip


@pytest.fixture(scope="module")
def pytorch(
    repository: Path, configs: tuple[Config, ...], tmp_path_factory: pytest.TempPathFactory
) -> SourceOutcome:
    return recipe_pins.read(ask(repository, configs, "pytorch", tmp_path_factory.mktemp("cache")))


def those(outcome: SourceOutcome, name: str) -> dict[str, RecipePin]:
    return {one.value: one for one in outcome.facts if isinstance(one, RecipePin) and one.name == name}


def text_at(repository: Path, fact: AnyFact) -> str:
    assert fact.where.line is not None
    return (repository / fact.where.file).read_text().splitlines()[fact.where.line - 1].strip()


def test_a_value_has_the_recipes_line_with_its_name(repository: Path, pytorch: SourceOutcome) -> None:
    nccl = those(pytorch, "nccl")["<2.29"]
    assert nccl.where.file == "recipe/recipe.yaml"
    assert "nccl <2.29" in text_at(repository, nccl)
    lines = {finding.name: text_at(repository, finding) for finding in pytorch.facts if finding.where.line}
    assert all(name in line for name, line in lines.items())
    assert {"triton", "libmagma-devel", "python"} <= lines.keys()


def test_a_compiler_has_its_package(pytorch: SourceOutcome) -> None:
    found = those(pytorch, "gcc")
    # conda-forge's compiler for CUDA 12.9 is older than its others
    assert {value: gcc.holds.configs for value, gcc in found.items()} == {
        "14.*": NARROW[1:2],
        "15.*": (NARROW[0], NARROW[2]),
    }
    assert {gcc.sections for gcc in found.values()} == {("build",)}


@pytest.mark.parametrize("package", ["pyg-lib", "pytorch_sparse"])
def test_every_extension_has_the_pins_of_its_recipe(
    repository: Path, configs: tuple[Config, ...], tmp_path: Path, package: str
) -> None:
    outcome = recipe_pins.read(
        ask(repository, configs, package, tmp_path, ("linux_64_cpu", "linux_64_cuda130"))
    )
    assert outcome.trouble == ""
    torch = those(outcome, "pytorch")
    versions = {value.split()[0] for value in torch}
    assert versions - {"*"} == {f"=={configs[0].torch_version}"}
    assert all(pin.where.line for pin in torch.values())


def test_arch_lists_are_those_of_the_matrix(
    repository: Path, configs: tuple[Config, ...], tmp_path: Path
) -> None:
    outcome = recipe_pins.read_archs(ask(repository, configs, "pytorch", tmp_path))
    lists = {one.holds.cuda[0]: one for one in outcome.facts if isinstance(one, RecipeArchs)}
    assert set(lists) == {"12.9", "13.0"}
    assert ";".join(lists["12.9"].archs) in text_at(repository, lists["12.9"])


def test_lines_are_found_in_blocks_and_branches(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "requirements:\n"
        "  host:\n"
        "    - zlib\n"
        "    - if: linux\n"
        "      then: fmt <12  # why\n"
        "      else: [fmt >=12, 'gmp']\n"
        "    - ${{ compiler('c') }}\n"
    )
    lines = requirement_lines(recipe)
    found = {(line.value, line.number) for line in lines}
    assert found >= {("zlib", 3), ("fmt <12", 5), ("fmt >=12", 6), ("gmp", 6), ("${{ compiler('c') }}", 7)}
    assert names_in(recipe) == ("fmt", "gmp", "zlib")


def test_a_rendered_requirement_is_found_by_value_or_name() -> None:
    texts = ("b ==${{ version }}", "b <0.0a0", "b", '${{ pin_subpackage("c") }}')
    lines = [Line("r", number, "", value=text) for number, text in enumerate(texts, start=1)]
    wanted = {("b", "<0.0a0"): 2, ("b", "==9"): 1, ("c", "==1 x_0"): 4, ("none", "*"): None}
    assert {pair: place(*pair, lines).line for pair in wanted} == wanted


def test_a_target_is_what_the_configs_build(repository: Path, configs: tuple[Config, ...]) -> None:
    found = target(find("scatter"), configs, repository)
    assert (found.package, found.tag) == ("pytorch_scatter", found.version)
    torch = target(find("torch"), configs, repository)
    assert (torch.package, torch.tag) == ("pytorch", f"v{torch.version}")
    assert "linux_64_cpu_debian" not in {build.name for build in torch.builds}  # another PyTorch
    old = target(find("pytorch"), configs, repository, version="2.6.0")
    debian = ("linux_64_cpu_debian", "linux_64_cuda124_debian", "linux_aarch64_cpu_debian")
    assert (tuple(build.name for build in old.builds), old.tag) == (debian, "v2.6.0")


def test_what_cannot_be_a_target_is_refused(repository: Path, configs: tuple[Config, ...]) -> None:
    with pytest.raises(UsageError, match="unknown package") as refused:
        find("pytorch_scater")
    assert "pytorch_scatter" in refused.value.remedy
    with pytest.raises(UsageError, match="not a version"):
        target(find("pytorch"), configs, repository, version="--upload-pack=x")
    with pytest.raises(UsageError, match="no configs"):
        target(find("pytorch"), (), repository)


def commits(outcome: SourceOutcome) -> list[RecipeCommit]:
    return [one for one in outcome.facts if isinstance(one, RecipeCommit)]


def test_the_real_recipes_pin_commits_by_keys_of_the_matrix(
    repository: Path, configs: tuple[Config, ...], tmp_path: Path
) -> None:
    outcome = recipe_pins.read_commits(ask(repository, configs, "pyg-lib", tmp_path))
    assert outcome.trouble == ""
    found = {(one.name, one.recipe): one for one in commits(outcome)}
    assert set(found) == {("pyg-lib", "pyg-lib"), ("METIS", "pytorch_sparse")}
    for one in found.values():
        assert (one.where.file, one.holds) == (f"recipe/pyg/{one.recipe}/recipe.yaml", Scope())
        assert one.name in text_at(repository, one)
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
    outcome = recipe_pins.read_commits(ask(repository, configs, "pyg-lib", tmp_path / "cache", own=own))
    ours = [one for one in commits(outcome) if one.recipe == "pyg-lib"]
    commit = configs[0].variant["pyg_lib_commit"][0]
    found = {(one.name, one.value): (one.holds.configs, one.where.file, one.where.line) for one in ours}
    assert found == {
        ("x", commit): (("linux_64_cpu", "osx_arm64_cpu"), "recipe.yaml", 5),
        ("x", ONE): (NARROW[1:3], "recipe.yaml", 9),
        ("z", "refs/tags/v1"): ((), "recipe.yaml", 11),
    }
    assert not [one for one in ours if "token" in str(one)]


def test_the_real_pins_are_compared_with_a_tag_from_git(
    repository: Path, configs: tuple[Config, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_settings(monkeypatch)
    asked = ask(repository, configs, "pyg-lib", tmp_path / "cache")
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
