"""A feedstock: where its recipe lies, and whether that can be built."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from groundwork.errors import ConfigError

_SETTINGS, _RECIPE, _OLD_RECIPE = "conda-forge.yml", "recipe.yaml", "meta.yaml"


def check(root: Path) -> None:
    """Refuse a folder that is no feedstock with a recipe that can be built.

    Raises ConfigError: It has no recipe, or one in conda-build's format.
    """
    folder = recipe_folder(root)
    if (folder / _RECIPE).is_file():
        return
    if (folder / _OLD_RECIPE).is_file():
        raise ConfigError(
            f"{folder / _OLD_RECIPE} is a recipe for conda-build, and this builds the v1 format, {_RECIPE}",
            f"convert it: conda-recipe-manager convert {folder / _OLD_RECIPE} > {folder / _RECIPE}; "
            "or the whole feedstock with feedrattler",
        )
    raise ConfigError(
        f"there is no {folder / _RECIPE}", "--root names a feedstock: the folder above its recipe/"
    )


@functools.lru_cache
def recipe_folder(root: Path) -> Path:
    """Return the folder with the recipe: the one that conda-forge.yml names, else ``recipe``.

    Raises ConfigError: That file cannot be read, or names a folder outside.
    """
    path = root.absolute() / _SETTINGS
    try:
        settings = (
            YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")) if path.is_file() else None
        )
    except (OSError, UnicodeError, YAMLError) as error:
        raise ConfigError(f"cannot read {path}: {error}", "correct it") from error
    named = str(settings.get("recipe_dir") or "recipe") if isinstance(settings, Mapping) else "recipe"
    folder = path.parent / named
    if not folder.resolve().is_relative_to(path.parent.resolve()):
        raise ConfigError(f"{path}: recipe_dir is outside the feedstock: {named}", "correct it")
    return folder
