"""Jinja2 renders every recipe: conda-smithy's linter and rerender read them with it, rattler-build with minijinja."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest
from jinja2.sandbox import SandboxedEnvironment
from ruamel.yaml import YAML

from megabuild.configs.config import load

ROOT = Path(__file__).resolve().parents[2]
VARIANTS = [
    {key: values[-1] for key, values in load(ROOT, name).variant.items()}
    for name in ("linux_64_cpu_wheel", "linux_64_cuda130", "osx_64_cpu")
]
RECIPES = [*sorted((ROOT / "recipe").rglob("recipe.yaml")), *sorted((ROOT / "contrib").rglob("recipe.yaml"))]


def environment(variant: Mapping[str, str]) -> SandboxedEnvironment:
    """What a reader of v1 recipes adds to Jinja2; a value that is not there stays undefined."""
    made = SandboxedEnvironment(
        variable_start_string="${{", variable_end_string="}}", undefined=jinja2.DebugUndefined
    )
    functions = ("compiler", "stdlib", "pin_subpackage", "pin_compatible", "match")
    made.globals |= dict.fromkeys(functions, lambda *_, **__: "stub")
    made.globals |= {"env": SimpleNamespace(get=lambda _, default="": default), "linux": True, **variant}
    made.filters["version_to_buildstring"] = lambda text: "".join(str(text).split()[0].split(".")[:2])
    return made


def texts(node: Any, *keys: str) -> Iterator[str]:
    """Yield every text of a document, or those below keys: what is after `if` and in `skip` has no braces."""
    if isinstance(node, dict):
        below = [node.get(key) for key in keys] if keys else []
        yield from (text for one in below for text in texts(one))
        node = [*node.values()]
    if isinstance(node, list):
        for child in node:
            yield from texts(child, *keys)
    elif isinstance(node, str) and not keys:
        yield node


def render(document: Any, variant: Mapping[str, str]) -> list[str]:
    reader = environment(variant)
    context: dict[str, str] = {}
    for key, value in document["context"].items():
        context[key] = reader.from_string(str(value)).render(context)
    for condition in texts(document.get("outputs", []), "if", "skip"):
        reader.compile_expression(condition)
    return [reader.from_string(text).render(context) for text in texts(document)]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.parent.name)
def test_jinja2_renders_every_recipe(recipe: Path) -> None:
    document = YAML(typ="safe", pure=True).load(recipe)
    assert render(document, {})
    for variant in VARIANTS:
        assert render(document, variant)
