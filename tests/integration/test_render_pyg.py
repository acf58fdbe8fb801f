"""What every config renders to for PyTorch Geometric's extensions: the names that are kept, and rules they obey."""

from __future__ import annotations

import re
from pathlib import Path

import plain_engine
import pytest
from kept_names import compare, pyg_recipes, pyg_table

from megabuild.configs.config import Config, available, load
from megabuild.configs.render import PlannedPackage, render
from megabuild.plan.extensions import render_tasks
from megabuild.plan.options import Options
from megabuild.plan.planning import overrides_from_options

ROOT = Path(__file__).resolve().parents[2]
RECIPES = {recipe.parent.name: recipe for recipe in pyg_recipes(ROOT)}
CONFIGS = [name for name in available(ROOT) if name.startswith("linux")]


@pytest.fixture(scope="module", params=CONFIGS)
def config(request: pytest.FixtureRequest) -> Config:
    return load(ROOT, request.param)


@pytest.fixture(scope="module")
def packages(config: Config) -> dict[str, tuple[PlannedPackage, ...]]:
    return {name: render(config, recipe) for name, recipe in RECIPES.items()}


def test_every_config_renders_to_the_names_that_are_kept(request: pytest.FixtureRequest) -> None:
    renew = request.config.getoption("--renew-names")
    found = pyg_table(ROOT)
    compare(ROOT / "tests" / "data" / "rendered_pyg.json", found, renew=renew)
    files = [file for rows in found.values() for file in rows]
    assert len(set(files)) == len(files), "two configs have a package of one name"


def test_a_plan_has_the_names_that_rattler_build_makes_without_the_driver(
    config: Config, tmp_path: Path
) -> None:
    overrides = overrides_from_options(Options(config=config, root=ROOT, output=tmp_path, cache=tmp_path))
    tasks = [
        task for name, recipe in RECIPES.items() for task in render_tasks(config, name, recipe, overrides)
    ]
    planned = [package.file_name for task in tasks for package in task.packages]
    # as recipe/pyg/README.md says, with the channel that has pytorch
    made = plain_engine.names(config, list(RECIPES.values()), tmp_path, "file:///a/channel", "conda-forge")
    assert sorted(made) == sorted(planned)


def test_requirements_are_those_of_the_config(
    config: Config, packages: dict[str, tuple[PlannedPackage, ...]]
) -> None:
    flavour = f"{config.accelerator}_{config.blas}"
    other = "pytorch-cpu" if config.cuda_version else "pytorch-gpu"
    nvcc = [f"cuda-nvcc_{config.platform} {config.cuda_version}.*"] if config.cuda_version else []
    arm = config.cuda_version and config.platform == "linux-aarch64" and config.provider == "conda-forge"
    for package in (one for made in packages.values() for one in made):
        assert f"pytorch =={config.torch_version} {flavour}_*" in package.host
        assert f"libtorch =={config.torch_version} {flavour}_*" in package.host
        assert {"pytorch", "python"} <= {spec.split()[0] for spec in package.run}
        assert f"{other} <0.0a0" in package.constraints
        assert [spec for spec in package.build if spec.startswith("cuda-nvcc")] == nvcc
        assert (f"cuda-version {config.cuda_version}.*" in package.host) == bool(nvcc)
        assert any(spec.startswith("arm-variant") for spec in package.build) == bool(arm), package.file_name


@pytest.mark.parametrize("name", ["linux_aarch64_cpu", "linux_aarch64_cuda130"])
def test_cross_compiling_makes_the_same_packages_with_a_pytorch_that_runs_here(name: str) -> None:
    config = load(ROOT, name)
    for recipe in RECIPES.values():
        native = render(config, recipe)
        crossed = render(config, recipe, build_platform="linux-64")
        assert [(package.name, package.version, package.python) for package in crossed] == [
            (package.name, package.version, package.python) for package in native
        ]
        for package in crossed:
            assert "cross-python_linux-aarch64" in package.build
            assert f"pytorch =={config.torch_version} {config.accelerator}_*" in package.build
            assert f"gxx_linux-aarch64 {config.variant['cxx_compiler_version'][0]}.*" in package.build
        assert not any(spec.startswith(("cross-python", "pytorch ")) for spec in native[0].build)


def test_where_sources_and_tools_come_from_is_not_part_of_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load(ROOT, "linux_64_cuda130")
    overrides = {
        "pyg_source_base": ("file:///somewhere",),
        **{
            f"pyg_{name}_git": ("file:///somewhere",)
            for name in ("scatter", "sparse", "cluster", "spline_conv")
        },
        "pyg_lib_source_path": ("/somewhere/pyg-lib",),
        "pyg_metis_source_path": ("/somewhere/metis",),
    }
    env = {"PYG_CCACHE": "/usr/bin/ccache", "PYG_WHEEL": "/a.whl", "MAKEFLAGS": "-j", "CPU_COUNT": "3"}
    named = {recipe: [package.file_name for package in render(config, recipe)] for recipe in RECIPES.values()}
    for key, value in env.items():
        monkeypatch.setenv(key, value)
    for recipe, names in named.items():
        found = render(config, recipe, overrides=overrides)
        assert [package.file_name for package in found] == names


@pytest.mark.parametrize(
    ("key", "value", "changed"),
    [
        ("torch_cuda_arch_list", "9.0;12.0", set(RECIPES)),
        ("torch_version", "2.13.1", set(RECIPES)),
        ("pyg_torch_pin", "exact", set(RECIPES)),
        ("pyg_sparse_metis", "none", {"pytorch_sparse"}),
        ("pyg_lib_commit", "0" * 40, {"pyg-lib"}),
        ("pyg_scatter_sha256", "0" * 64, {"pytorch_scatter"}),
    ],
)
def test_what_changes_the_contents_changes_the_name(key: str, value: str, changed: set[str]) -> None:
    config = load(ROOT, "linux_64_cuda130")
    for name, recipe in RECIPES.items():
        before = {package.file_name for package in render(config, recipe)}
        after = {package.file_name for package in render(config, recipe, overrides={key: (value,)})}
        assert before.isdisjoint(after) if name in changed else before == after, name


def test_a_pin_other_than_the_usual_one_is_named_in_the_build_string() -> None:
    config = load(ROOT, "linux_64_cuda130")
    for recipe in RECIPES.values():
        for pin, word in (("minor", ""), ("exact", "exact_"), ("stable", "stable_")):
            first = render(config, recipe, overrides={"pyg_torch_pin": (pin,)})[0]
            assert re.match(rf"cuda130_mkl_{word}(py310|abi3)_h", first.build_string), first.build_string


def test_pyg_lib_is_built_with_any_one_python_under_the_same_name() -> None:
    config, recipe = load(ROOT, "linux_64_cpu"), RECIPES["pyg-lib"]
    (usual,) = render(config, recipe)
    overrides = {"python": ("3.12.* *_cpython",), "is_python_min": ("true",)}
    (other,) = render(config, recipe, overrides=overrides)
    assert (usual.python, other.python) == ("3.10", "3.12")
    assert other.file_name == usual.file_name
