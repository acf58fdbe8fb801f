"""The platform that compiles a config: this machine's own, or the one that conda-forge.yml names."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from groundwork.channel import Channel
from groundwork.errors import ConfigError, PreflightError
from megabuild.configs import config as configs
from megabuild.configs.config import Config, available, list_configs, load, recipe_of
from megabuild.configs.platforms import Platforms, choose_build_platform, image_on
from megabuild.configs.render import PlannedPackage, render
from megabuild.plan import solving
from megabuild.plan.environment_packages import requirements_of, solve_all
from megabuild.providers.environment import Environment

#: The used variant of torchvision-feedstock 989aae3, its CUDA config for aarch64 and Python 3.11.
TORCHVISION = {
    "c_compiler": "gcc", "c_compiler_version": "14", "c_stdlib": "sysroot", "c_stdlib_version": "2.17",
    "channel_sources": "conda-forge", "channel_targets": "conda-forge main", "cuda_compiler": "cuda-nvcc",
    "cuda_compiler_version": "12.9", "cudnn": "9", "cxx_compiler": "gxx", "cxx_compiler_version": "14", "giflib": "5.2",
    "libjpeg_turbo": "3", "libpng": "1.6", "libtorch": "2.7", "libwebp": "1", "python": "3.11.* *_cpython",
    "pytorch": "2.7", "target_platform": "linux-aarch64",
}  # fmt: skip
#: As conda-forge has it (conda-forge-repodata-patches-feedstock#1135).
PUBLISHED = "torchvision-0.24.0-cuda129_py311_h02b8398_0.conda"
RECIPE = """\
schema_version: 1
package:
  name: torchvision
  version: 0.24.0
build:
  number: 0
  string: cuda129_py311_h${{ hash }}_0
  variant:
    use_keys: [KEYS]
requirements:
  build:
    - if: build_platform != target_platform
      then: cross-python_${{ target_platform }}
  host:
    - zlib
  run:
    - png
about:
  license: BSD-3-Clause
"""
SETTINGS = "build_platform:\n  linux_aarch64: linux_64\n  osx_arm64: osx_64\n"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configs, "machine_platform", lambda: "linux-64")


def feedstock(root: Path, settings: str = SETTINGS) -> Config:
    (root / ".ci_support").mkdir()
    (root / "recipe").mkdir()
    (root / "conda-forge.yml").write_text(settings)
    keys = ", ".join(TORCHVISION)
    (root / "recipe" / "recipe.yaml").write_text(RECIPE.replace("KEYS", keys))
    lines = [f"{key}: ['{value}']\n" for key, value in TORCHVISION.items()]
    (root / ".ci_support" / "linux_aarch64_.yaml").write_text("".join(lines))
    return load(root, "linux_aarch64_")


def test_a_cross_compiled_package_has_the_name_that_conda_forge_has_published(tmp_path: Path) -> None:
    made = feedstock(tmp_path)
    (package,) = render(made, recipe_of(tmp_path, made), build_platform=made.build_platform)
    assert package.file_name == PUBLISHED
    (native,) = render(made, recipe_of(tmp_path, made))
    assert "hf7a0ce6" in native.file_name


@pytest.mark.parametrize(
    ("settings", "machine", "expected"),
    [
        (SETTINGS, "linux-64", "linux-64"),
        (SETTINGS, "osx-arm64", "linux-64"),
        (SETTINGS, "linux-aarch64", "linux-aarch64"),
        ("", "linux-64", "linux-aarch64"),
        ("build_platform: {osx_arm64: osx_64}\n", "linux-64", "linux-aarch64"),
        ("build_platform: {linux_aarch64: linux_aarch64}\n", "linux-64", "linux-aarch64"),
        ("build_platform:\n", "linux-64", "linux-aarch64"),
    ],
)
def test_a_machine_compiles_for_itself_and_for_another_one_as_conda_forge_yml_says(
    settings: str, machine: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "conda-forge.yml").write_text(settings)
    assert choose_build_platform(tmp_path, "linux-aarch64", machine) == expected


def test_without_conda_forge_yml_a_build_is_native(tmp_path: Path) -> None:
    assert choose_build_platform(tmp_path, "linux-aarch64", "linux-64") == "linux-aarch64"


@pytest.mark.parametrize(
    "text",
    [
        "build_platform: [a",
        "- a\n",
        "build_platform: 1\n",
        "build_platform: [linux_64]\n",
        "build_platform: linux_64\n",
        "build_platform: {linux_aarch64: [x]}\n",
        "build_platform: {linux_aarch64: 64}\n",
        "build_platform: {linux_aarch64: }\n",
        "build_platform: {linux_aarch64: linux-64}\n",
        "build_platform: {linux_aarch64: linux_63}\n",
        "build_platform: 2026-99-99\n",
        "build_platform: \xff\n",
    ],
)
def test_a_damaged_conda_forge_yml_is_named_and_not_quoted(text: str, tmp_path: Path) -> None:
    (tmp_path / "conda-forge.yml").write_text(f"{text}# secret\n", encoding="latin-1")
    with pytest.raises(ConfigError, match=r"conda-forge\.yml") as refused:
        choose_build_platform(tmp_path, "linux-aarch64", "linux-64")
    assert "secret" not in str(refused.value)


def test_this_repositorys_configs_for_arm_are_cross_compiled_but_for_unpacked_wheels(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in available(repository):
        made = load(repository, name)
        crosses = made.platform == "linux-aarch64" and made.provider != "wheel"
        assert (made.build_platform == "linux-64") == (crosses or made.platform == "linux-64"), name
    monkeypatch.setattr(configs, "machine_platform", lambda: "linux-aarch64")
    assert load(repository, "linux_aarch64_cpu").platforms == Platforms.native("linux-aarch64")


def test_a_cross_build_runs_in_the_image_of_the_machine_that_compiles(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [load(repository, name) for name in ("linux_aarch64_cpu", "linux_64_cpu", "osx_arm64_cpu")]
    images = [config.docker_image.rpartition("/")[2].partition(":")[0] for config in made]
    assert images == ["linux-anvil-x86_64", "linux-anvil-x86_64", ""]
    for machine, image in (("linux-aarch64", "linux-anvil-aarch64"), ("linux-64", "linux-anvil-x86_64")):
        monkeypatch.setattr(configs, "machine_platform", lambda here=machine: here)
        document: Any = list_configs(repository, ["linux_aarch64_cpu"]).document
        (config,) = document["configs"]
        assert (config["platform"], config["build_platform"]) == ("linux-aarch64", machine)
        assert f"/{image}:" in config["docker_image"]
        of_smithy = "quay.io/condaforge/linux-anvil-x86_64:alma10"  # of a cross build
        assert image_on(machine, of_smithy) == of_smithy.replace("linux-anvil-x86_64", image)


@pytest.mark.parametrize("end", ["", ":alma10", "@sha256:0123"])
def test_only_the_machine_in_the_name_of_conda_forges_image_follows_the_platform(end: str) -> None:
    image = f"quay.io/condaforge/linux-anvil-x86_64{end}"
    on_arm = image.replace("x86_64", "aarch64")
    assert image_on("linux-aarch64", image) == on_arm
    assert image_on("linux-64", on_arm) == image
    for other in (f"quay.io/own/linux-anvil-x86_64-more{end}", f"x86_64{end}", ""):
        assert image_on("linux-aarch64", other) == other
    assert image_on("osx-arm64", on_arm) == on_arm, "no image for this machine"


def test_build_environments_of_a_cross_build_are_for_the_machine_that_compiles() -> None:
    cross = Platforms(build="linux-64", target="linux-aarch64")
    kinds = {
        kind: cross.of(kind) for kind in ("build", "staging build", "host", "staging host", "run", "test")
    }
    assert [kind for kind, platform in kinds.items() if platform == "linux-64"] == ["build", "staging build"]
    assert set(kinds.values()) == {"linux-64", "linux-aarch64"}
    assert cross.subdirs == ("linux-aarch64", "linux-64", "noarch")
    assert Platforms.native("linux-64").subdirs == ("linux-64", "noarch")


def test_build_environments_are_solved_for_the_machine_and_all_others_for_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = feedstock(tmp_path)
    (package,) = render(made, recipe_of(tmp_path, made), build_platform=made.build_platform)
    solved: dict[str, str] = {}

    def solve(specs: tuple[str, ...], given: Environment, platform: str, what: str) -> dict[str, str]:
        solved[what.split(": ")[1]] = platform
        return {}

    monkeypatch.setattr(solving, "environment", solve)
    channel = solving.Solver(Environment(channels=(), pythons=()), made.platforms, own=())
    channel._given = Environment(channels=(None,), pythons=())  # type: ignore[arg-type]
    channel.built_with(package)
    expected = {"build": "linux-64", "host": "linux-aarch64", "run": "linux-aarch64"}
    assert solved == {f"{kind} environment": platform for kind, platform in expected.items()}
    needed = requirements_of([package], (), made.platforms)
    assert {each.what.split(": ")[1].split()[0]: each.platform for each in needed} == expected


def test_equal_requirements_are_solved_for_each_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = feedstock(tmp_path)
    (package,) = render(made, recipe_of(tmp_path, made), overrides={}, build_platform=made.build_platform)
    same = replace(package, build=("zlib",), host=("zlib",), run=(), test=())
    given = Environment(channels=(Channel.of_folder(tmp_path),), pythons=())

    def solve(specs: tuple[str, ...], given: Environment, platform: str, what: str) -> dict[str, str]:
        return {specs[0]: platform}

    def solve_records(specs: tuple[str, ...], channels: Any, platform: str, **_: object) -> list[Any]:
        return [SimpleNamespace(url=f"{platform}/{specs[0]}")]

    monkeypatch.setattr(solving, "environment", solve)
    monkeypatch.setattr(solving, "solved", solve_records)
    lines = solving.Solver(given, made.platforms, own=()).built_with(same)
    assert lines == ["build zlib linux-64", "host zlib linux-aarch64"]
    records = solve_all(requirements_of([same], (), made.platforms), given)
    assert set(records) == {"linux-64/zlib", "linux-aarch64/zlib"}


@pytest.mark.parametrize(
    ("build_platform", "subdir", "is_asked"),
    [("linux-64", "linux-aarch64", True), ("linux-64", "noarch", False), ("linux-aarch64", "linux-aarch64", False)],
    ids=["cross", "cross, noarch", "native"],
)  # fmt: skip
def test_a_cross_build_takes_packages_that_it_makes_for_another_platform_from_the_channels(
    build_platform: str, subdir: str, is_asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept environments must have them, too: a resumed run gets no other packages."""
    made = feedstock(tmp_path)
    (package,) = render(made, recipe_of(tmp_path, made), build_platform=made.build_platform)
    extension = replace(package, build=("pytorch 2.6",), host=("pytorch 2.6",), run=("pytorch",), test=())
    asked: list[str] = []

    def solve(specs: tuple[str, ...], given: Environment, platform: str, what: str) -> dict[str, str]:
        asked.extend(f"{platform} {spec}" for spec in specs)
        return {}

    monkeypatch.setattr(solving, "environment", solve)
    platforms = Platforms(build=build_platform, target="linux-aarch64")
    own = [replace(package, name="pytorch", subdir=subdir)]
    given = Environment(channels=(Channel.of_folder(tmp_path),), pythons=())
    solving.Solver(given, platforms, own).built_with(extension)
    assert asked == (["linux-64 pytorch 2.6"] if is_asked else [])
    kept = requirements_of([extension], own, platforms)
    assert [f"{each.platform} {each.specs[0]}" for each in kept] == asked


@pytest.mark.parametrize(
    ("tests", "is_unsolvable"),
    [
        (("zlib",), True),
        (("zlib", "pytorch", "pytorch 2.6"), True),
        (("zlib 1", "zlib 2", "pytorch"), False),
    ],
)
def test_tests_without_a_solution_end_the_plan_unless_they_have_several_environments(
    tests: tuple[str, ...], is_unsolvable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run makes pytorch itself, so that each test may name it."""
    made = feedstock(tmp_path)
    (package,) = render(made, recipe_of(tmp_path, made), build_platform=made.build_platform)
    tested = replace(package, build=(), host=(), run=(), test=tests)

    def refuse(*_: object) -> None:
        raise PreflightError("no solution")

    monkeypatch.setattr(solving, "environment", refuse)
    given = Environment(channels=(Channel.of_folder(tmp_path),), pythons=())
    own = [replace(package, name="pytorch", subdir="linux-aarch64")]
    solver = solving.Solver(given, Platforms.native("linux-aarch64"), own)
    with pytest.raises(PreflightError) if is_unsolvable else nullcontext():
        solver.built_with(tested)


def test_an_environment_is_optional_if_each_of_its_needs_is(tmp_path: Path) -> None:
    made = feedstock(tmp_path)
    (package,) = render(made, recipe_of(tmp_path, made), build_platform=made.build_platform)
    tested = replace(package, name="tested", build=(), host=(), run=(), test=("zlib",))
    running = replace(package, name="running", build=(), host=(), run=("zlib",), test=())
    for packages, is_optional in (((tested,), True), ((running,), False), ((tested, running), False)):
        for order in (packages, packages[::-1]):
            (needed,) = requirements_of(order, (), made.platforms)
            assert needed.is_optional == is_optional


def test_only_a_free_threaded_python_is_left_out_for_an_environment_without_a_solution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object, package: PlannedPackage) -> None:
        raise PreflightError(f"{package.python} cannot be solved")

    monkeypatch.setattr(solving.Solver, "built_with", fail)
    platforms = Platforms.native("linux-64")
    package = PlannedPackage(
        name="a", version="1", build_string="0", build_number=0, file_name="a.conda", subdir="linux-64",
        python="3.13", build=(), host=(), run=(), constraints=(), test=(),
    )  # fmt: skip
    packages = [replace(package, python=python) for python in (None, "3.13", "3.13t", "3.15t")]
    given = Environment(channels=(), pythons=("3.13", "3.13t", "3.14t"))
    gaps = solving.free_threaded_gaps(packages, given, platforms)
    assert gaps == {"3.13t": "3.13t cannot be solved"}


def test_all_environments_of_a_package_are_solved(tmp_path: Path) -> None:
    """A run with kept environments has no other packages."""
    made = feedstock(tmp_path)
    (package,) = render(made, recipe_of(tmp_path, made), build_platform=made.build_platform)
    python = "python 3.12.*"
    full = replace(
        package, staging_build=("a",), staging_host=("b",), build=("c",), host=("d", python), run=("e",), test=("f",)
    )  # fmt: skip
    needed = {each.specs: each.is_optional for each in requirements_of([full], (), made.platforms)}
    assert needed == {
        ("a",): False, ("b",): False, ("c",): False, ("d", python): False, ("e", python): False, ("f", python): True,
        ("d", python, "e"): True,
    }  # fmt: skip


def test_a_requirement_of_both_environments_is_solved_for_both_platforms(tmp_path: Path) -> None:
    made = feedstock(tmp_path)
    (package,) = render(made, recipe_of(tmp_path, made), overrides={}, build_platform=made.build_platform)
    same = type(package)(**{**package.__dict__, "build": ("zlib",), "host": ("zlib",), "run": ()})
    needed = requirements_of([same], (), made.platforms)
    assert [(each.specs, each.platform) for each in needed] == [
        (("zlib",), "linux-64"),
        (("zlib",), "linux-aarch64"),
    ]
