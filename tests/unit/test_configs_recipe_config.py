"""What conda-smithy is given: the recipe's own variant file and conda-forge.yml; and what its linter asks for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from rattler_build import JinjaConfig, PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig
from ruamel.yaml import YAML

from groundwork.errors import ConfigError
from megabuild.configs import matrix
from megabuild.configs.config import Config, load
from megabuild.configs.config_file import stamped
from megabuild.configs.render import render
from pyg_extensions.table import archs_of

OWN = "recipe/conda_build_config.yaml"
CONFIGS = {
    "linux-64": "linux_64_cuda130",
    "linux-aarch64": "linux_aarch64_cuda130",
    "osx-64": "osx_64_cpu",
    "osx-arm64": "osx_arm64_cpu",
}


def own(repository: Path, platform: str) -> VariantConfig:
    target = PlatformConfig(target_platform=platform, build_platform=platform, host_platform=platform)
    return VariantConfig.from_conda_build_config(repository / OWN, JinjaConfig(target))


@pytest.mark.parametrize(("platform", "config"), CONFIGS.items())
def test_its_values_are_the_matrix_s_and_text(repository: Path, platform: str, config: str) -> None:
    read, there = own(repository, platform), load(repository, config).variant
    for key in set(read.keys()) - {"blas_impl"}:
        values = read[key]
        assert all(isinstance(value, str) for value in values), key
        if not key.startswith("torch_cuda_arch_list"):
            assert tuple(values) == there[key]
    blas = [*(["mkl"] if platform.endswith("-64") else []), "generic"]
    assert list(read["blas_impl"]) == blas


def test_it_names_no_pin_of_conda_forge_and_no_zip(repository: Path) -> None:
    for platform, config in CONFIGS.items():
        read = own(repository, platform)
        assert not read.zip_keys
        # what several of conda-forge's feedstocks set for themselves
        pins = {
            "python",
            "numpy",
            "cuda_compiler_version",
            "c_compiler_version",
            "libprotobuf",
            "is_python_min",
        }
        assert not pins & set(read.keys())
        assert pins <= load(repository, config).variant.keys()


def test_a_value_for_some_platforms_only_says_so(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "recipe").mkdir()
    shutil.copy(repository / "recipe" / "recipe.yaml", tmp_path / "recipe")
    text = (repository / matrix.MATRIX_FILE).read_text()
    (tmp_path / matrix.MATRIX_FILE).write_text(
        text.replace(
            'torch_python_base:\n  - "3.12"\n',
            'torch_python_base:\n  - "3.12"  # [osx or aarch64]\n  - "3.13"  # [linux and x86_64]\n',
        )
    )
    matrix.write(tmp_path)
    found = {platform: list(own(tmp_path, platform)["torch_python_base"]) for platform in CONFIGS}
    assert found == {key: ["3.12"] for key in CONFIGS} | {"linux-64": ["3.13"]}


def test_somebody_s_own_file_beside_the_recipe_is_kept(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "recipe").mkdir()
    shutil.copy(repository / "recipe" / "recipe.yaml", tmp_path / "recipe")
    shutil.copy(repository / matrix.MATRIX_FILE, tmp_path)
    (tmp_path / OWN).write_text("blas_impl:\n  - mkl\n")
    with pytest.raises(ConfigError, match=r"recipe/conda_build_config\.yaml: not generated here"):
        matrix.write(tmp_path)
    assert (tmp_path / OWN).read_text() == "blas_impl:\n  - mkl\n"
    (tmp_path / OWN).write_text(stamped("old: ['1']\n"))
    assert matrix.write(tmp_path)[OWN] == "changed"
    assert matrix.outdated(tmp_path) == {}


@pytest.mark.parametrize("config", ["linux_64_cpu", "linux_64_cuda130", "linux_aarch64_cuda134"])
def test_recipes_choose_the_arch_list_that_the_matrix_has(
    config: str, repository: Path, tmp_path: Path
) -> None:
    """conda-smithy's configs say nothing of it: a list zipped with CUDA comes out of a rerender as None."""
    known = load(repository, config)
    (expected,) = known.variant["torch_cuda_arch_list"]
    made = {key: list(values) for key, values in known.variant.items()}
    for key in ("torch_cuda_arch_list", "torch_source_path", "is_python_min"):
        del made[key]
    for key in [key for key in made if key.startswith("pyg_")]:
        del made[key]
    (tmp_path / ".ci_support").mkdir()
    shutil.copytree(repository / "recipe", tmp_path / "recipe")
    with (tmp_path / ".ci_support" / "linux_a.yaml").open("w") as file:
        YAML(typ="safe", pure=True).dump(made, file)
    smithy = load(tmp_path, "linux_a")
    assert archs_of(smithy.variant) == archs_of(known.variant)
    for recipe in (repository / "recipe/recipe.yaml", repository / "recipe/pyg/pytorch_scatter/recipe.yaml"):
        told = scripts_are_told(smithy, recipe)
        assert told == {expected}, recipe
        assert told == scripts_are_told(known, recipe)
        names = [[one.name for one in render(of, recipe) if not one.skipped] for of in (smithy, known)]
        assert names[0] == names[1]


def scripts_are_told(config: Config, recipe: Path) -> set[str]:
    """Return the arch lists that build scripts get."""
    values = VariantConfig(config.as_written(config.variant), [list(group) for group in config.zip_keys])
    target = PlatformConfig(
        target_platform=config.platform, build_platform=config.platform, host_platform=config.platform
    )
    rendered = Stage0Recipe.from_file(recipe).render(values, RenderConfig(target))
    scripts = [variant.recipe.to_dict()["build"]["script"] for variant in rendered]
    return {
        script["env"]["torch_cuda_arch_list"]
        for script in scripts
        if isinstance(script, dict) and "torch_cuda_arch_list" in script.get("env", {})
    }


def smithy_config(repository: Path, root: Path, **changed: str) -> Config:
    """Make a clone with a config as conda-smithy writes it: no list of GPU architectures."""
    known = load(repository, "linux_64_cuda130")
    (root / ".ci_support").mkdir()
    shutil.copytree(repository / "recipe", root / "recipe")
    made = {key: list(values) for key, values in known.variant.items() if not key.startswith("torch_cuda")}
    with (root / ".ci_support" / "linux_64_a.yaml").open("w") as file:
        YAML(typ="safe", pure=True).dump(made | {key: [value] for key, value in changed.items()}, file)
    return load(root, "linux_64_a")


@pytest.mark.parametrize(
    ("cuda", "newest"),
    [("12.8", "cuda129"), ("13.10", "cuda134")],
)
def test_cuda_without_a_list_of_its_own_has_the_newest_of_its_major_version(
    cuda: str, newest: str, repository: Path, tmp_path: Path
) -> None:
    (expected,) = load(repository, f"linux_64_{newest}").variant["torch_cuda_arch_list"]
    made = smithy_config(repository, tmp_path, cuda_compiler_version=cuda)
    for recipe in (tmp_path / "recipe/recipe.yaml", tmp_path / "recipe/pyg/pytorch_scatter/recipe.yaml"):
        assert scripts_are_told(made, recipe) == {expected}, recipe


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


def test_conda_smithy_renders_what_the_matrix_has_and_leaves_our_files(repository: Path) -> None:
    settings = YAML(typ="safe").load(repository / "conda-forge.yml")
    served = {platform.replace("-", "_") for platform in matrix.PLATFORMS}
    providers = settings["provider"]
    assert {name for name, provider in providers.items() if provider == "github_actions"} == served
    assert providers["win_64"] == "None", "rendered unless it is said not to be"
    # what it copies or renders into the root of any feedstock
    theirs = {".gitattributes", ".gitignore", "LICENSE.txt", "README.md", "build-locally.py"}
    assert set(settings["skip_render"]) == theirs
    # what it deletes there
    for name in ("LICENSE", "pixi.toml", ".github/CONTRIBUTING.md", ".github/workflows/main.yml"):
        assert not (repository / name).exists(), name


def test_migrations_are_known_by_date_and_number(repository: Path) -> None:
    found = list((repository / ".ci_support" / "migrations").glob("*.yaml"))
    assert found
    for path in found:
        content = YAML(typ="safe").load(path)
        assert content.keys() == {"migrator_ts", "__migrator"}, "the rest is conda-forge's to say"
        assert content["__migrator"]["migration_number"] == 1


def test_recipes_have_what_the_linter_asks_for(repository: Path) -> None:
    recipes = [*repository.glob("recipe/pyg/*/recipe.yaml"), repository / "recipe" / "wheel" / "recipe.yaml"]
    for path in (repository / "recipe" / "recipe.yaml", *recipes):
        recipe = YAML(typ="safe", pure=True).load(path)
        assert recipe["extra"]["recipe-maintainers"], path
        assert "number" in recipe["build"], path
        order = ["schema_version", "context", "recipe", "build", "outputs", "about", "extra"]
        assert list(recipe) == order, path
        assert {"homepage", "license", "license_file", "summary"} <= recipe["about"].keys(), path
        assert all(one.get("tests") for one in recipe["outputs"] if "package" in one), path
        assert path.read_text().endswith("\n")
        assert not path.read_text().endswith("\n\n"), path
