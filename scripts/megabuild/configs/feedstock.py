"""A feedstock: where its recipe lies, and whether that can be built."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from groundwork.errors import ConfigError

CONFIG_FOLDER = ".ci_support"
_SETTINGS = "conda-forge.yml"
#: Where none is named. libtorch 2.13.0 for the CPU, 483 MB: 105 MB at level 3 (2 CPU seconds), 97 at 6 (5),
#: 93 at 10 (11), 92 at 15 (93), 87 at 17 (162).
_LEVEL, _HIGHEST = 10, 22


def check(root: Path) -> None:
    """Refuse a folder that is no feedstock with a recipe that can be built, or has links that lead outside.

    Raises ConfigError: It has no recipe, or one in conda-build's format.
    """
    _refuse_links(root, [root / _SETTINGS])
    folder = recipe_folder(root)
    _refuse_links(root, [*(root / CONFIG_FOLDER).rglob("*"), root / CONFIG_FOLDER, *folder.rglob("*")])
    if (folder / "recipe.yaml").is_file():
        return
    if (folder / "meta.yaml").is_file():
        raise ConfigError(
            f"{folder / 'meta.yaml'} is a recipe for conda-build, and this builds the v1 format, recipe.yaml",
            f"convert it: conda-recipe-manager convert {folder / 'meta.yaml'} > {folder / 'recipe.yaml'}",
        )
    raise ConfigError(
        f"there is no {folder / 'recipe.yaml'}", "--root names a feedstock: the folder above its recipe/"
    )


def _refuse_links(root: Path, paths: Iterable[Path]) -> None:
    """Refuse links that lead outside: an error would show a line of a file that only this user can read."""
    for path in paths:
        if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
            raise ConfigError(
                f"{path} is a link to outside the feedstock: {os.readlink(path)}", "replace it by a file"
            )


@functools.lru_cache
def recipe_folder(root: Path) -> Path:
    """Return the folder with the recipe: the one that conda-forge.yml names, else ``recipe``.

    Raises ConfigError: That file cannot be read, or names a folder outside.
    """
    root = root.absolute()
    named = str(_settings(root).get("recipe_dir") or "recipe")
    folder = root / named
    if not folder.resolve().is_relative_to(root.resolve()):
        raise ConfigError(f"{root / _SETTINGS}: recipe_dir is outside the feedstock: {named}", "correct it")
    return folder


def compression_level(root: Path) -> int:
    """Return the zstd level, 1 to 22, that conda-forge.yml names for packages (``zstd_compression_level``).

    Raises ConfigError: That file cannot be read, or names no such level.
    """
    of_build = _settings(root.absolute()).get("conda_build")
    level = of_build.get("zstd_compression_level", _LEVEL) if isinstance(of_build, Mapping) else _LEVEL
    if not isinstance(level, int) or not 1 <= level <= _HIGHEST:
        raise ConfigError(
            f"{root / _SETTINGS}: zstd_compression_level is {level!r}", f"name one from 1 to {_HIGHEST}"
        )
    return level


@functools.lru_cache
def _settings(root: Path) -> Mapping[str, Any]:
    path = root / _SETTINGS
    try:
        settings = (
            YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")) if path.is_file() else None
        )
    except (OSError, UnicodeError, YAMLError) as error:
        raise ConfigError(f"cannot read {path}: {error}", "correct it") from error
    return settings if isinstance(settings, Mapping) else {}
