"""What conda-smithy is given: the recipe's own variant file and conda-forge.yml; and what its linter asks for."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from rattler_build import JinjaConfig, PlatformConfig, VariantConfig
from ruamel.yaml import YAML

from groundwork.errors import ConfigError
from megabuild.configs import matrix
from megabuild.configs.config import MATRIX_FILE, load
from megabuild.configs.config_file import stamped
from megabuild.configs.provider_name import ProviderName

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
    text = (repository / MATRIX_FILE).read_text()
    (tmp_path / MATRIX_FILE).write_text(
        text.replace(
            'torch_python_base:\n  - "3.12"\n',
            'torch_python_base:\n  - "3.12"  # [osx or aarch64]\n  - "3.13"  # [linux and x86_64]\n',
        )
    )
    matrix.write(tmp_path)
    found = {platform: list(own(tmp_path, platform)["torch_python_base"]) for platform in CONFIGS}
    assert found == {key: ["3.12"] for key in CONFIGS} | {"linux-64": ["3.13"]}


#: Own keys of a recipe, by platform.
OWN_KEYS = {
    "linux-64": {
        "torch_linux": ["a"],
        "torch_version": ["3.10", "4"],
        "torch_most": ["other"],
        "pyg_flag": ["true"],
    },
    "linux-aarch64": {
        "torch_linux": ["a"],
        "torch_version": ["4"],
        "torch_most": ["most"],
        "pyg_flag": ["null"],
    },
    "osx-64": {"torch_version": ["1.20"], "torch_most": ["most"], "pyg_flag": ["~"], "torch_mac": ["-1"]},
    "osx-arm64": {"torch_version": ["1.20"], "torch_most": ["most"], "pyg_flag": [""]},
}


def test_each_platform_reads_its_own_keys_and_values_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(_: Path, platform: str, provider: ProviderName) -> SimpleNamespace:
        pins = {"numpy": ["2"], "cuda_compiler_version": ["None"], "torch_cuda_arch_list": ["None"]}
        return SimpleNamespace(variant={**pins, **OWN_KEYS[platform], "provider": [provider.value]})

    monkeypatch.setattr(matrix, "_read", read)
    (tmp_path / "recipe").mkdir()
    (tmp_path / OWN).write_text(matrix._recipe_text(tmp_path))
    for platform, keys in OWN_KEYS.items():
        found = own(tmp_path, platform)
        assert {key: list(found[key]) for key in set(found.keys())} == {**keys, "provider": ["conda-forge"]}


def test_the_recipe_has_a_list_of_architectures_for_each_cuda_and_kind_of_machine() -> None:
    values = {
        "cuda_compiler_version": ["None", "12.9", "12.9", "13.0"],
        "arm_variant_type": ["sbsa", "sbsa", "tegra", "sbsa"],
        "torch_cuda_arch_list": ["None", "9.0", "8.7", "10.0"],
    }  # fmt: skip
    lists = {"cuda129": ["9.0"], "tegra": ["8.7"], "cuda130": ["10.0"]}
    assert matrix._own_keys(values) == {
        f"torch_cuda_arch_list_{name}": archs for name, archs in lists.items()
    }
    del values["arm_variant_type"]
    values["torch_cuda_arch_list"][2] = "9.0"
    assert matrix._own_keys(values).keys() == {"torch_cuda_arch_list_cuda129", "torch_cuda_arch_list_cuda130"}


def test_somebody_s_own_file_beside_the_recipe_is_kept(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "recipe").mkdir()
    shutil.copy(repository / "recipe" / "recipe.yaml", tmp_path / "recipe")
    shutil.copy(repository / MATRIX_FILE, tmp_path)
    (tmp_path / OWN).write_text("blas_impl:\n  - mkl\n")
    with pytest.raises(ConfigError, match=r"recipe/conda_build_config\.yaml: "):
        matrix.write(tmp_path)
    assert (tmp_path / OWN).read_text() == "blas_impl:\n  - mkl\n"
    (tmp_path / OWN).write_text(stamped("old: ['1']\n"))
    assert matrix.write(tmp_path)[OWN] == "changed"
    assert matrix.outdated(tmp_path) == {}


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
        assert not os.path.lexists(repository / name), name


def test_a_rerender_has_the_migrations_and_the_runners_of_the_live_feedstock(repository: Path) -> None:
    """Without cuda130 there is no CUDA 13, without arm_variant_type no Tegra; GitHub's runners stop after 6 hours."""
    migrations = {path.stem for path in (repository / ".ci_support" / "migrations").iterdir()}
    live = {"absl_grpc_proto_26Q2", "arm_variant_type", "cuda130", "pybind11_abi11", "python314"}
    assert migrations == live
    linux, osx = "namespace-profile-16cpu-on-linux-64", "namespace-profile-12cpu-on-osx-arm64"
    labels = {platform: own(repository, platform)["github_actions_labels"] for platform in CONFIGS}
    expected = {platform: linux if platform.startswith("linux") else osx for platform in CONFIGS}
    assert {platform: list(values) for platform, values in labels.items()} == {
        platform: [label] for platform, label in expected.items()
    }
    for page in ("contrib/github/megabuild.yml", "docs/ci.md"):
        assert linux in (repository / page).read_text(encoding="utf-8"), page


def test_the_licence_stands_a_rerender(repository: Path) -> None:
    """conda-smithy removes a root file LICENSE, through links, and writes LICENSE.txt unless told not to."""
    root, packed = repository / "LICENSE.txt", repository / "recipe" / "LICENSE"
    assert not root.is_symlink()
    assert not packed.is_symlink()
    assert packed.read_bytes()
    assert root.read_bytes() == packed.read_bytes()


def test_migrations_are_known_by_date_and_number(repository: Path) -> None:
    found = list((repository / ".ci_support" / "migrations").glob("*.yaml"))
    assert found
    for path in found:
        content = YAML(typ="safe").load(path)
        assert content.keys() == {"migrator_ts", "__migrator"}, "the rest is conda-forge's to say"
        assert content["__migrator"]["migration_number"] == 1
