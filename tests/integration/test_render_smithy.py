"""Configs as conda-smithy writes them, without lists of GPU architectures: recipes choose the matrix's."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from kept_names import pyg_recipes
from packaging.version import Version
from rattler_build import PlatformConfig, RenderConfig, RenderedVariant, Stage0Recipe, VariantConfig
from ruamel.yaml import YAML

from groundwork.errors import ConfigError
from groundwork.names import accelerator
from megabuild.configs.config import Config, available, load
from megabuild.configs.render import render
from pyg_extensions.table import archs_of


@pytest.mark.parametrize("name", ["linux_64_cpu", "linux_64_cuda130", "linux_aarch64_cuda134"])
def test_recipes_choose_the_arch_list_that_the_matrix_has(
    name: str, repository: Path, tmp_path: Path
) -> None:
    """conda-smithy's configs say nothing of it: a list zipped with CUDA comes out of a rerender as None."""
    known = load(repository, name)
    (expected,) = known.variant["torch_cuda_arch_list"]
    smithy = smithy_config(repository, tmp_path, name)
    assert archs_of(smithy.variant) == archs_of(known.variant)
    for recipe in (repository / "recipe/recipe.yaml", repository / "recipe/pyg/pytorch_scatter/recipe.yaml"):
        told = scripts_are_told(smithy, recipe)
        assert told == {expected}, recipe
        assert told == scripts_are_told(known, recipe)
        names = [[one.name for one in render(of, recipe)] for of in (smithy, known)]
        assert names[0] == names[1]


def variants(config: Config, recipe: Path) -> list[RenderedVariant]:
    """Render a recipe, as conda-smithy has rattler-build do."""
    values = VariantConfig(config.as_written(config.variant), [list(group) for group in config.zip_keys])
    target = PlatformConfig(
        target_platform=config.platform, build_platform=config.platform, host_platform=config.platform
    )
    return Stage0Recipe.from_file(recipe).render(values, RenderConfig(target))


@pytest.mark.parametrize("name", ["cpu", "cuda129", "cuda129_tegra", "cuda130"])
def test_every_package_for_arm_uses_the_key_by_which_conda_smithy_separates_tegra(
    name: str, repository: Path
) -> None:
    """conda-smithy makes configs by the keys that all outputs use; else sbsa and tegra would share a config."""
    config = load(repository, f"linux_aarch64_{name}")
    for made in variants(config, repository / "recipe" / "recipe.yaml"):
        assert {"arm_variant_type", "cuda_compiler_version"} <= set(made.variant), made.recipe.package.name


def scripts_are_told(config: Config, recipe: Path) -> set[str]:
    """Return the arch lists that build scripts get."""
    scripts = [variant.recipe.to_dict()["build"]["script"] for variant in variants(config, recipe)]
    return {
        script["env"]["torch_cuda_arch_list"]
        for script in scripts
        if isinstance(script, dict) and "torch_cuda_arch_list" in script.get("env", {})
    }


def smithy_config(repository: Path, root: Path, name: str = "linux_64_cuda130", **changed: str) -> Config:
    """Make a clone with a config as conda-smithy writes it: no list of GPU architectures."""
    known = load(repository, name)
    (root / ".ci_support").mkdir()
    shutil.copytree(repository / "recipe", root / "recipe")
    left_out = ("torch_cuda", "torch_source_path", "is_python_min", "pyg_")
    made = {key: list(values) for key, values in known.variant.items() if not key.startswith(left_out)}
    with (root / ".ci_support" / "linux_64_a.yaml").open("w") as file:
        YAML(typ="safe", pure=True).dump(made | {key: [value] for key, value in changed.items()}, file)
    return load(root, "linux_64_a")


@pytest.mark.long  # every recipe is rendered for each CUDA
def test_cuda_has_its_own_list_or_the_newest_of_its_major_version(repository: Path, tmp_path: Path) -> None:
    configs = [load(repository, name) for name in available(repository) if name.startswith("linux_64_cuda")]
    versions = {config.cuda_version or "" for config in configs if config.follows_conda_forge}
    chosen = {version: version for version in versions}
    for version in sorted(versions, key=Version):
        chosen[f"{version.partition('.')[0]}.99"] = version
    for wanted, version in chosen.items():
        root = tmp_path / wanted
        root.mkdir()
        name = smithy_config(repository, root, cuda_compiler_version=wanted).name
        metapackage = find_metapackage(root, name)
        key, lists = (
            f"torch_cuda_arch_list_{accelerator(version)}",
            root / "recipe" / "conda_build_config.yaml",
        )
        # lists may be equal
        lists.write_text(re.sub(rf"({key}:.*\n  - )\S+", r"\g<1>9.9", lists.read_text()))
        for recipe in (root / "recipe" / "recipe.yaml", *pyg_recipes(root)):
            assert scripts_are_told(load(root, name), recipe) == {"9.9"}, f"{recipe}: name {key} for {wanted}"
        assert find_metapackage(root, name) == metapackage, f"add {key} to ignore_keys of pytorch-gpu"


def find_metapackage(root: Path, config: str) -> str:
    """Return the file name of pytorch-gpu, which contains no code for GPUs."""
    packages = render(load(root, config), root / "recipe" / "recipe.yaml")
    return next(package.file_name for package in packages if package.name == "pytorch-gpu")


def test_a_major_version_of_cuda_without_a_list_is_an_error_that_names_the_key(
    repository: Path, tmp_path: Path
) -> None:
    made = smithy_config(repository, tmp_path, cuda_compiler_version="14.0")
    with pytest.raises(ConfigError, match="torch_cuda_arch_list"):
        render(made, tmp_path / "recipe" / "recipe.yaml")


def test_a_config_of_conda_smithys_for_python_3_15_renders(repository: Path, tmp_path: Path) -> None:
    made = smithy_config(repository, tmp_path, python="3.15.* *_cp315", is_python_min="false")
    (pytorch,) = (one for one in render(made, tmp_path / "recipe" / "recipe.yaml") if one.name == "pytorch")
    assert (pytorch.python, "_py315_h" in pytorch.build_string) == ("3.15", True)
