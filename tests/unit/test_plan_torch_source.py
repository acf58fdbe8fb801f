"""A release of PyTorch that the user brings: what is found out before anything is compiled."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from groundwork.errors import IntegrityError, MegabuildError, PreflightError, UsageError
from megabuild.configs.config import load
from megabuild.configs.render import render
from megabuild.plan import torch_source
from megabuild.plan.other_torch import torch_index, with_torch
from megabuild.plan.torch_source import SourceTree
from megabuild.providers.pypi import torch

GITMODULES = """\
[submodule "third_party/fmt"]
\tpath = third_party/fmt
\turl = https://example.org/fmt.git
[submodule "third_party/ideep"]
    path = third_party/ideep
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "pytorch-v2.14.1"
    for name in ("fmt", "ideep"):
        (folder / "third_party" / name).mkdir(parents=True)
        (folder / "third_party" / name / "README").touch()
    (folder / ".gitmodules").write_text(GITMODULES)
    (folder / "version.txt").write_text("2.14.1a0\n")
    (folder / "pyproject.toml").write_text('[project]\nname = "torch"\nrequires-python = ">=3.10"\n')
    (folder / ".ci" / "docker").mkdir(parents=True)
    (folder / ".ci" / "docker" / "triton_version.txt").write_text("3.8.0\n")
    return folder


@pytest.fixture
def tarball(tree: Path) -> Path:
    path = tree.with_name("pytorch.tar.gz")
    with tarfile.open(path, "w:gz") as archive:
        archive.add(tree, tree.name)
    return path


def find(
    given: Path, version: str = "2.14.1", digest: str | None = None, third_party: bool = True
) -> SourceTree:
    cache = given.parent / "cache"
    return torch_source.check_source(
        given, digest=digest, version=version, third_party=third_party, cache=cache, report=lambda text: None
    )


def of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def refused(kind: type[MegabuildError], says: str, *arguments: object) -> MegabuildError:
    with pytest.raises(kind, match=says) as caught:
        find(*arguments)  # type: ignore[arg-type]
    assert caught.value.remedy
    return caught.value


def test_a_folder_is_taken_as_it_is_with_the_triton_and_the_pythons_that_it_names(tree: Path) -> None:
    assert find(tree) == SourceTree(path=tree, triton="3.8.0", pythons=">=3.10")
    (tree / "pyproject.toml").write_text("[build-system]\n")
    (tree / ".ci" / "docker" / "triton_version.txt").unlink()
    assert find(tree) == SourceTree(path=tree, triton=None, pythons=None)


def test_a_tarball_is_unpacked_once(tarball: Path) -> None:
    found = find(tarball, digest=of(tarball))
    assert (found.path / "version.txt").is_file()
    (found.path / "mark").touch()
    assert (find(tarball, digest=of(tarball).upper()).path / "mark").is_file()
    assert not list((tarball.parent / "cache" / "torch-source").glob(".unpacking-*"))


def test_another_version_is_refused_and_the_way_to_build_it_named(tree: Path) -> None:
    error = refused(UsageError, r"is PyTorch 2\.14\.1a0, and 2\.13\.0 is to be built", tree, "2.13.0")
    assert "--torch 2.14.1" in error.remedy


def test_a_folder_that_is_no_pytorch_is_refused(tree: Path) -> None:
    (tree / "version.txt").write_text("two\n")
    refused(PreflightError, "'two', which is not a version", tree)
    (tree / "version.txt").unlink()
    refused(PreflightError, "no version.txt", tree)


def test_missing_submodules_are_named_where_the_build_needs_them(tree: Path) -> None:
    (tree / "third_party" / "fmt" / "README").unlink()
    error = refused(PreflightError, "third_party/fmt", tree)
    assert "third_party/ideep" not in error.message
    assert 'GitHub\'s own archives ("Source code") have none' in error.remedy
    (tree / ".git").touch()
    assert "`git submodule update" in refused(PreflightError, "third_party/fmt", tree).remedy
    assert find(tree, third_party=False).path == tree


def test_a_tarball_needs_its_sha256_and_is_told_it(tarball: Path) -> None:
    assert of(tarball) in refused(UsageError, "without a sha256", tarball).remedy


def test_another_tarball_than_the_one_meant_is_refused(tarball: Path) -> None:
    refused(IntegrityError, "not 0000", tarball, "2.14.1", "0" * 64)


@pytest.mark.parametrize("cut", [0, 60])
def test_a_broken_tarball_is_refused_and_leaves_nothing(tarball: Path, cut: int) -> None:
    tarball.write_bytes(tarball.read_bytes()[:cut] if cut else b"no tar")
    refused(IntegrityError, "cannot be unpacked", tarball, "2.14.1", of(tarball))
    assert not list((tarball.parent / "cache" / "torch-source").iterdir())


def test_a_folder_has_no_sha256_and_nothing_is_no_source(tree: Path) -> None:
    refused(UsageError, "is a folder", tree, "2.14.1", "0" * 64)
    refused(UsageError, "there is no", tree / "nosuch")


@pytest.mark.parametrize(
    ("name", "torch", "source", "digest", "says"),
    [
        ("linux_64_cpu_wheel", None, "tree", None, "compiles no PyTorch"),
        ("linux_64_cpu_wheel", "2.15.0", None, "00", "--torch-sha256"),
        ("linux_64_cpu", None, None, "00", "--torch-sha256"),
        ("linux_64_cpu", "2.15.0", None, None, "knows no source of PyTorch 2.15.0"),
        ("linux_64_cpu_debian", "2.14.1", None, "00", "knows no source of PyTorch 2.14.1"),
        ("linux_64_cpu", "2.14", "tree", None, "not a release"),
        ("linux_64_cpu", "2.16.0.dev20261120", "tree", None, "not a release"),
        ("linux_64_cpu_wheel", "2.16.0.dev1", None, None, "not a release"),
    ],
)
def test_what_no_provider_can_have_is_refused_at_once(
    repository: Path, name: str, torch: str | None, source: str | None, digest: str | None, says: str
) -> None:
    config = load(repository, name)
    with pytest.raises(UsageError, match=says):
        with_torch(config, torch, Path(source) if source else None, digest, rehearse=False)


def test_a_nightly_build_comes_as_a_wheel(repository: Path) -> None:
    config = load(repository, "linux_64_cpu_wheel")
    version = "2.16.0.dev20261120"
    changed = with_torch(config, version, None, None, rehearse=False)
    packages = render(changed, repository / "recipe" / "recipe.yaml")
    assert {package.version for package in packages if not package.skipped} == {version}
    assert torch.upstream(changed) == f"{torch.UPSTREAM}/nightly/cpu"


def test_an_index_of_wheels_is_for_configs_that_take_them(repository: Path, tmp_path: Path) -> None:
    compiled, wheels = load(repository, "linux_64_cpu"), load(repository, "linux_64_cpu_wheel")
    with pytest.raises(UsageError, match="takes no wheels"):
        torch_index(compiled, "https://index.example/whl")
    with pytest.raises(UsageError, match="there is no folder"):
        torch_index(wheels, str(tmp_path / "nosuch"))
    assert torch_index(wheels, str(tmp_path)) == str(tmp_path)
    assert torch_index(wheels, "https://index.example/whl") == "https://index.example/whl"
    assert torch_index(compiled, None) is None


def test_another_release_changes_the_version_everywhere(repository: Path) -> None:
    config = with_torch(load(repository, "linux_64_cpu"), "2.6.0", None, "ab" * 32, rehearse=False)
    assert config.torch_version == "2.6.0"
    assert config.variant["torch_sha256"] == ("ab" * 32,)
    packages = [
        package for package in render(config, repository / "recipe" / "recipe.yaml") if not package.skipped
    ]
    assert {package.version for package in packages} == {"2.6.0"}
    # requirements follow the version, whoever provides them
    pytorch = next(package for package in packages if package.name == "pytorch")
    assert "cmake >=3.27,<4" in pytorch.build
    assert {"setuptools <75", "pybind11 <3"} <= set(pytorch.host)
    assert "sympy ==1.13.1" in pytorch.run


def test_where_the_source_lies_is_not_part_of_the_names(repository: Path) -> None:
    recipe, config = repository / "recipe" / "recipe.yaml", load(repository, "linux_64_cpu")
    names = [
        [package.file_name for package in render(config, recipe, overrides={"torch_source_path": (path,)})]
        for path in ("/here", "/there")
    ]
    assert names[0] == names[1]


def test_every_patch_is_listed_once_for_a_source_wherever_it_comes_from(repository: Path) -> None:
    recipe = YAML(typ="safe").load((repository / "recipe" / "recipe.yaml").read_text(encoding="utf-8"))
    *sources, patched = recipe["outputs"][0]["source"]
    assert all("torch_source_path" in one["if"] and "patches" not in one["then"] for one in sources)
    assert patched["if"] == 'torch_source != "model"'
    common, by_source = patched["then"]["patches"]
    assert by_source["if"] == 'torch_source == "official"'
    listed = [common, *by_source["then"], *by_source["else"]]
    folder = repository / "recipe" / "patches"
    assert sorted(listed) == sorted(str(path.relative_to(folder.parent)) for path in folder.rglob("*.patch"))
