"""What every config renders to: the names kept in tests/data/rendered.json, and rules they obey."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import plain_engine
import pytest
from kept_names import compare, table
from rattler import MatchSpec
from ruamel.yaml import YAML

from groundwork.errors import UsageError
from megabuild.configs.config import Config, available, load, recipe_of
from megabuild.configs.render import PlannedPackage, _render, render
from megabuild.plan.options import Options
from megabuild.plan.planning import overrides_from_options, render_recipe
from megabuild.plan.upstream_tests import KEY
from megabuild.providers.specs import satisfied

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipe" / "recipe.yaml"
WHEEL_RECIPE = ROOT / "recipe" / "wheel" / "recipe.yaml"
NAMES = available(ROOT)


@pytest.fixture(scope="module", params=NAMES)
def config(request: pytest.FixtureRequest) -> Config:
    return load(ROOT, request.param)


@pytest.fixture(scope="module")
def packages(config: Config) -> tuple[PlannedPackage, ...]:
    return render(config, recipe_of(ROOT, config))


def of(packages: tuple[PlannedPackage, ...], name: str) -> tuple[PlannedPackage, ...]:
    return tuple(package for package in packages if package.name == name)


def test_every_config_renders_to_the_names_that_are_kept(request: pytest.FixtureRequest) -> None:
    renew = request.config.getoption("--renew-names")
    compare(ROOT / "tests" / "data" / "rendered.json", table(ROOT), renew=renew)


def test_a_plan_has_the_names_that_rattler_build_makes_without_the_driver(
    config: Config, tmp_path: Path
) -> None:
    # by default, the driver leaves upstream's tests out of a cross build; the config has them
    tests = True if "1" in config.variant.get(KEY, ()) else None
    options = Options(config=config, root=ROOT, output=tmp_path, cache=tmp_path, upstream_tests=tests)
    packages = render_recipe(options, overrides_from_options(options))
    planned = [one.file_name for one in packages]
    mirror = ["file:///a/mirror"] if config.name in ("linux_64_cpu", "linux_64_cpu_wheel") else []
    assert plain_engine.names(config, [recipe_of(ROOT, config)], tmp_path, *mirror) == planned


def test_upstream_s_tests_are_a_package_more_and_change_no_other(config: Config, tmp_path: Path) -> None:
    options = Options(config=config, root=ROOT, output=tmp_path, cache=tmp_path, upstream_tests=True)
    if config.provider == "wheel":
        with pytest.raises(UsageError, match="torch_upstream_tests"):
            overrides_from_options(options)
        return
    plain = overrides_from_options(replace(options, upstream_tests=False))
    without, more = (render_recipe(options, wanted) for wanted in (plain, overrides_from_options(options)))
    kept_names = [one.file_name for one in without]
    assert [one.file_name for one in more if one.name != "pytorch-tests"] == kept_names
    tests = of(tuple(more), "pytorch-tests")
    for one, pytorch in zip(tests, of(tuple(more), "pytorch"), strict=True):
        assert (one.python, one.build_number) == (pytorch.python, pytorch.build_number)
        spec = MatchSpec(one.run[0])
        assert [other.file_name for other in more if satisfied([spec], other.id)] == [pytorch.file_name]
    # nothing of staging or of the others depends on it: switched on later, it compiles nothing
    assert not any("pytorch-tests" in spec for one in more for spec in one.run)


@pytest.mark.parametrize(
    "name", ["linux_64_cpu", "linux_64_cuda130", "linux_aarch64_cpu", "linux_64_cpu_debian"]
)
@pytest.mark.parametrize(("choice", "expected"), [(True, True), (None, False)])
def test_a_rehearsal_has_upstream_s_tests_on_request_only(
    name: str, choice: bool | None, expected: bool, tmp_path: Path
) -> None:
    options = Options(
        config=load(ROOT, name),
        root=ROOT,
        output=tmp_path,
        cache=tmp_path,
        rehearse=True,
        upstream_tests=choice,
    )
    packages = render_recipe(options, overrides_from_options(options))
    assert any(one.name == "pytorch-tests" for one in packages) == expected


def test_requirements_are_those_of_the_config(config: Config, packages: tuple[PlannedPackage, ...]) -> None:
    (libtorch,) = of(packages, "libtorch")
    pin = f"libtorch =={libtorch.version} {libtorch.build_string}"
    triton = config.cuda_version is not None and config.platform.startswith("linux")
    for pytorch in of(packages, "pytorch"):
        assert pin in pytorch.host
        assert pin in pytorch.run
        assert ("__cuda" in pytorch.run) == (config.cuda_version is not None)
        assert any(spec.startswith("triton ") for spec in pytorch.run) == triton
    other = "pytorch-cpu" if config.cuda_version else "pytorch-gpu"
    assert f"{other} <0.0a0" in libtorch.constraints
    assert ("libopenblas * openmp_*" in libtorch.constraints) == (config.blas == "generic")
    (glibc,) = config.variant["c_stdlib_version"]
    stdlib = "macosx_deployment_target" if config.platform.startswith("osx") else "sysroot"
    assert f"{stdlib}_{config.platform} {glibc}.*" in libtorch.staging_build
    compiler = "clangxx" if config.platform.startswith("osx") else "gxx"
    (version,) = config.variant["cxx_compiler_version"]
    assert f"{compiler}_{config.platform} {version}.*" in libtorch.staging_build
    cuda = [spec for spec in libtorch.staging_build if spec.startswith("cuda-nvcc")]
    compiled = config.cuda_version and config.provider != "wheel"
    assert cuda == ([f"cuda-nvcc_{config.platform} {config.cuda_version}.*"] if compiled else [])
    # packages with CUDA on ARM name their kind of machine
    (kind,) = config.variant.get("arm_variant_type", ("",))
    arm = {f"arm-variant * {kind}"} if compiled and config.platform == "linux-aarch64" else set()
    for package in packages:
        building = (*package.staging_build, *package.build)
        found = {spec for spec in (*building, *package.host) if spec.startswith("arm-variant")}
        assert found == arm, package.file_name
        with_cuda = any(spec.startswith("cuda-nvcc") for spec in building)
        assert with_cuda or not arm or package.name == "pytorch-gpu"


@pytest.mark.parametrize("name", ["linux_64_cpu", "linux_64_cuda130", "osx_arm64_cpu"])
def test_libtorch_gets_the_libraries_that_its_headers_include(name: str) -> None:
    """By their run_exports it requires them. Debian's and official wheels' libtorch have copies of the headers."""
    packages = render(load(ROOT, name), RECIPE)
    (libtorch,) = of(packages, "libtorch")
    for host in (libtorch.staging_host, *(pytorch.host for pytorch in of(packages, "pytorch"))):
        assert {"fmt 12.1.*", "onednn", "sleef"} <= set(host)
        assert any(spec.startswith("numpy ") for spec in host)


def test_wheels_taken_apart_ask_for_what_a_compile_asks_for() -> None:
    for version in ("2.11.0", "2.13.0", "2.15.0"):
        wheel, compiled = (
            of(render(load(ROOT, name), recipe, overrides={"torch_version": (version,)}), "pytorch")[0].run
            for name, recipe in (("linux_64_cpu_wheel", WHEEL_RECIPE), ("linux_64_cpu_generic", RECIPE))
        )
        own = {spec for spec in (*wheel, *compiled) if spec.startswith("libtorch ==")} | {
            "llvm-openmp",
            "nomkl",
        }
        assert set(wheel) - own == set(compiled) - own, version


def test_the_place_of_the_source_and_the_fingerprint_of_staging_are_not_part_of_the_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = load(ROOT, "linux_64_cpu_debian")
    names = [package.file_name for package in render(config, RECIPE)]
    elsewhere = render(config, RECIPE, overrides={"torch_source_path": ("/somewhere/else",)})
    monkeypatch.setenv("STAGING_FINGERPRINT", "0" * 64)
    monkeypatch.setenv("TORCH_TREE", "/tree")
    _render.cache_clear()
    salted = render(config, RECIPE)
    assert [package.file_name for package in elsewhere] == names
    assert [package.file_name for package in salted] == names


def test_narrowing_the_pythons_changes_no_other_name() -> None:
    config = load(ROOT, "linux_64_cpu")
    narrowed = render(config, RECIPE, overrides={"python": ("3.12.* *_cpython",)})
    assert {package.file_name for package in narrowed} < {
        package.file_name for package in render(config, RECIPE)
    }
    pythons = {package.name: package.python for package in narrowed if package.python}
    assert pythons == {"pytorch": "3.12", "pytorch-tests": "3.12"}


def test_what_runs_ninja_has_the_environment_that_staging_compiled_in() -> None:
    """A header that is gone, or another one, would dirty libtorch's objects; YAML has no way to say it once."""
    document = YAML(typ="safe", pure=True).load(RECIPE.read_text())
    staging, pytorch = (
        next(one for one in document["outputs"] if one.get(kind, {}).get("name") == name)
        for kind, name in (("staging", "libtorch-staging"), ("package", "pytorch"))
    )
    for place in ("build", "host"):
        there = specs(staging["requirements"][place])
        here = specs(pytorch["requirements"][place])
        assert {spec for _, spec in there - here} == {"python ${{ torch_python_base }}.*"}, place
        assert {spec for _, spec in here - there} <= {
            "python", "patchelf", '${{ pin_subpackage("libtorch", exact=True) }}',
        }, place  # fmt: skip


def specs(entries: Any, conditions: tuple[str, ...] = ()) -> set[tuple[tuple[str, ...], str]]:
    """Flatten requirements into specs with the conditions they stand under."""
    found: set[tuple[tuple[str, ...], str]] = set()
    for entry in entries if isinstance(entries, list) else [entries]:
        if isinstance(entry, dict):
            found |= specs(entry.get("then", []), (*conditions, entry["if"]))
            found |= specs(entry.get("else", []), (*conditions, f"not {entry['if']}"))
        else:
            found.add((conditions, entry))
    return found
