"""Recipes rendered for a config: what their outputs require."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from megabuild.configs import render


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
