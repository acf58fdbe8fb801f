"""Finds the variants that a recipe skips.

The engine's library leaves out skipped outputs, but renders a recipe of one package for all variants, and does not say
which of them the engine skips when it builds. Such a recipe is therefore rendered as a list with one output, too.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rattler_build import RenderConfig, RenderedVariant, Stage0Recipe, VariantConfig
from ruamel.yaml import YAML

#: Keys of a recipe of one package that its output has, too.
_OF_OUTPUT = ("package", "source", "build", "requirements", "tests", "about")
_OF_RECIPE = ("schema_version", "context")
_WIDEST = 1 << 20  # columns: longer than any line, which YAML would break


def without_skipped(
    rendered: Sequence[RenderedVariant],
    recipe: Stage0Recipe,
    text: str,
    variants: VariantConfig,
    machines: RenderConfig,
) -> Iterator[RenderedVariant]:
    """Return the rendered variants of a recipe that it does not skip; ``text``: the recipe's content.

    Raises:
        RattlerBuildError: The recipe cannot be rendered.
        YAMLError: The text has what YAML forbids, such as a key twice.
    """
    if not _may_skip(recipe):
        yield from rendered
        return
    listed = Stage0Recipe.from_yaml(_as_list(text))
    kept = [dict(variant.variant) for variant in listed.render(variants, machines)]
    for variant in rendered:
        values = dict(variant.variant)
        if any(_agree(values, other) for other in kept):
            yield variant


def _may_skip(recipe: Stage0Recipe) -> bool:
    """Return whether this is a recipe of one package, with conditions to skip it."""
    parts = recipe.to_dict()
    return "outputs" not in parts and bool(parts["build"].get("skip"))


def _as_list(text: str) -> str:
    """Return a recipe of one package as a list with one output."""
    yaml = YAML()  # keeps 1.10 as it is written
    yaml.width = _WIDEST
    document = yaml.load(text)
    output = {key: document[key] for key in _OF_OUTPUT if key in document}
    listed = {key: document[key] for key in _OF_RECIPE if key in document}
    listed["outputs"] = [output]
    written = io.StringIO()
    yaml.dump(listed, written)
    return written.getvalue()


def _agree(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two variants have the same values of the keys that both use."""
    return all(one[key] == other[key] for key in one.keys() & other.keys())
