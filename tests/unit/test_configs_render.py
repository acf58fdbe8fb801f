"""Recipes rendered for a config: what their outputs require."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from small_files import write
from tiny import ROOT

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
