"""Recipes rendered for a config: what their outputs require."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_files import write
from tiny import ROOT

from groundwork.errors import ConfigError
from megabuild.configs import render
from megabuild.configs.config import load

STAGED = """\
schema_version: 1
recipe: {name: x, version: "1"}
outputs:
  - staging: {name: x-build}
    source: {git: "https://site.invalid/x.git", tag: v1}
    build: {script: "true"}
    requirements: {build: [cmake], host: [fmt]}
  - package: {name: x}
    inherit: x-build
    build: {string: "${{ channel_sources }}_0", script: "true"}
"""


def test_a_package_has_the_requirements_and_the_sources_of_its_staging(tmp_path: Path) -> None:
    recipe = write(tmp_path / "recipe.yaml", STAGED)
    (package,) = render.render(load(ROOT, "tiny"), recipe, overrides={"channel_sources": ("mine",)})
    assert (package.staging, package.staging_build, package.staging_host) == ("x-build", ("cmake",), ("fmt",))
    assert package.git == (("https://site.invalid/x.git", "refs/tags/v1"),)
    assert package.names_channels
    assert package.facts.keys() >= {"staging_build", "staging_host", "git"}


@pytest.mark.parametrize(
    ("item", "spec"),
    [
        ("x >=1", "x >=1"),
        ({"pin_subpackage": {"name": "a", "exact": True}}, "a ==1 h_0"),
        ({"pin_subpackage": {"name": "a", "exact": False}}, "a"),
        ({"pin_subpackage": {"name": "a"}}, "a"),
        ({"pin_subpackage": {"name": "b", "exact": True}}, "b"),
        ({"pin_compatible": {"name": "a", "exact": True}}, "a"),
    ],
)
def test_only_an_exact_pin_on_a_sibling_names_its_build(item: object, spec: str) -> None:
    pins = {"a": SimpleNamespace(version="1", build_string="h_0")}
    assert render._spec(item, pins) == spec


RECIPE = """\
schema_version: 1
package: {name: x, version: "1"}
build: {number: 2, script: "true"}
"""


def rendered(folder: Path, text: str, **variant: tuple[str, ...]) -> tuple[render.PlannedPackage, ...]:
    config = replace(load(ROOT, "tiny"), variant={**variant, "target_platform": ("linux-64",)}, zip_keys=())
    return render.render(config, write(folder / "recipe.yaml", text))


def test_environments_of_builds_have_the_config_s_pins_and_all_others_have_none(tmp_path: Path) -> None:
    needs = {kind: ["c-lib", "free", "c-lib >2"] for kind in ("build", "host", "run", "run_constraints")}
    own = f"{RECIPE}requirements: {needs}\n"
    (package,) = rendered(tmp_path, own, c_lib=("1.2",), tool=("3",))
    pinned = ("c-lib 1.2.*", "free", "c-lib >2")
    assert (package.build, package.host) == (pinned, pinned)
    assert (package.run, package.constraints) == (("c-lib", "free", "c-lib >2"),) * 2
    staged = STAGED.replace("[cmake]", "[cmake, c-lib]").replace("[fmt]", "[fmt, c-lib]")
    (package,) = rendered(tmp_path, staged.replace("channel_sources", "'h'"), c_lib=("1.2.*",), fmt=(">=3",))
    assert package.staging_build == ("cmake", "c-lib 1.2.*")
    assert package.staging_host == ("fmt >=3", "c-lib 1.2.*")


@pytest.mark.parametrize(
    ("spec", "variant", "pinned"),
    [
        ("a", {"a": "1"}, "a 1.*"),
        ("a-b", {"a_b": "1.2"}, "a-b 1.2.*"),
        ("a_b", {"a_b": "1.2"}, "a_b 1.2.*"),
        ("a", {"a": "1.2.*"}, "a 1.2.*"),
        ("a", {"a": ">=1"}, "a >=1"),
        ("a", {"a": "<2"}, "a <2"),
        ("a", {"a": "!=2"}, "a !=2"),
        ("a", {"a": "1.2 h_0"}, "a 1.2 h_0"),
        ("a >2", {"a >2": "1", "a": "1"}, "a >2"),
        ("a", {"b": "1"}, "a"),
    ],
)
def test_a_bare_name_gets_the_pin_of_its_key(spec: str, variant: Mapping[str, str], pinned: str) -> None:
    assert render._pin(spec, variant) == pinned


def test_tests_need_all_that_their_requirements_name(tmp_path: Path) -> None:
    tests = [{"script": ["true"], "requirements": {"build": ["a"], "run": ["b", "a"]}}, {"script": ["true"]}]
    (package,) = rendered(tmp_path, f"{RECIPE}tests: {tests}\n")
    assert package.test == ("a", "b")


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        ({}, {"subdir": "linux-64", "build_number": 2}),
        ({"noarch": "generic"}, {"subdir": "noarch"}),
        ({"string": "${{ channel_sources }}_0"}, {"names_channels": True, "build_string": "mine_0"}),
        ({"variant": {"use_keys": ["channel_sources"]}}, {"names_channels": True}),
        ({"variant": {"use_keys": ["channel_sources"], "ignore_keys": ["channel_sources"]}},
         {"names_channels": False}),
    ],
)  # fmt: skip
def test_a_planned_package_is_what_its_build_section_says(
    build: Mapping[str, Any], expected: Mapping[str, object], tmp_path: Path
) -> None:
    section = json.dumps({"number": 2, "script": "true", **build})
    text = RECIPE.replace('{number: 2, script: "true"}', section)
    (package,) = rendered(tmp_path, text, channel_sources=("mine",))
    assert {name: getattr(package, name) for name in expected} == expected


def test_each_value_of_a_used_key_is_a_package_and_each_package_is_planned_once(tmp_path: Path) -> None:
    text = RECIPE.replace("number: 2", 'number: 2, string: "${{ a }}_0"')
    packages = rendered(tmp_path, text, a=("1", "2"), unused=("3", "4"))
    assert [package.build_string for package in packages] == ["1_0", "2_0"]


@pytest.mark.parametrize(
    ("skip", "expected"),
    [("false", ["1_0", "2_0"]), ("true", []), ("linux", []), ("win", ["1_0", "2_0"]), ("a == '2'", ["1_0"])],
)
def test_a_package_that_the_recipe_skips_is_not_planned(
    skip: str, expected: list[str], tmp_path: Path
) -> None:
    """As the CUDA packages of a CPU config."""
    text = RECIPE.replace("number: 2", f'number: 2, string: "${{{{ a }}}}_0", skip: ["{skip}"]')
    packages = rendered(tmp_path, text, a=("1", "2"))
    assert [package.build_string for package in packages] == expected


def test_partners_of_an_overridden_key_follow_in_the_plan(tmp_path: Path) -> None:
    zipped = {"a": ("1", "2"), "b": ("x", "y"), "target_platform": ("linux-64",)}
    config = replace(load(ROOT, "tiny"), variant=zipped, zip_keys=(("a", "b"),))
    text = RECIPE.replace("number: 2", 'number: 2, string: "${{ a }}${{ b }}_0"')
    recipe = write(tmp_path / "recipe.yaml", text)
    strings = [package.build_string for package in render.render(config, recipe, overrides={"a": ("2",)})]
    assert strings == ["2y_0"]


def test_a_changed_recipe_is_rendered_again(tmp_path: Path) -> None:
    versions = [rendered(tmp_path, RECIPE.replace('"1"', f'"{version}"'))[0].version for version in "121"]
    assert versions == ["1", "2", "1"]


def test_secrets_stay_in_the_environment_also_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BINSTAR_TOKEN", "secret")
    with pytest.raises(ConfigError, match=r"recipe\.yaml:2: cannot be rendered for tiny: "):
        rendered(tmp_path, RECIPE.replace('"1"', '"${{ undefined_name }}"'))
    assert os.environ["BINSTAR_TOKEN"] == "secret"
