"""The package names of every config, as rendered now, and as kept in tests/data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from megabuild.configs.config import available, load, recipe_of
from megabuild.configs.render import render

RENEW = "scripts/test tests/integration/test_render_*.py -k kept --renew-names"
#: Where packages for other processors are cross-compiled; it is part of their hashes.
CROSS_FROM = "linux-64"


def table(root: Path) -> dict[str, list[str]]:
    """Render every config, and ``<config>-rehearsal`` beside those that compile PyTorch.

    Returns: For every config the files of its packages, ``<subdir>/<name>-<version>-<build string>.conda``, in build
      order.
    """
    rows: dict[str, list[str]] = {}
    for name in available(root):
        config = load(root, name)
        kinds: dict[str, dict[str, Sequence[str]]] = {name: {}}
        if config.provider != "wheel":
            kinds[f"{name}-rehearsal"] = {"torch_source": ("model",)}  # it differs in nothing else
        for row, overrides in kinds.items():
            packages = render(config, recipe_of(root, config), overrides=overrides)
            rows[row] = [f"{package.subdir}/{package.file_name}" for package in packages]
    return rows


def pyg_recipes(root: Path) -> tuple[Path, ...]:
    """Return the recipes of PyTorch Geometric's extensions, sorted by name."""
    return tuple(sorted((root / "recipe" / "pyg").glob("*/recipe.yaml")))


def pyg_table(root: Path) -> dict[str, list[str]]:
    """Render every extension for every config that has extensions: those for Linux, and ``<config>-cross`` beside them.

    Returns: As `table`, for the packages of all extensions of a config.
    """
    rows: dict[str, list[str]] = {}
    for name in available(root):
        config = load(root, name)
        if not config.platform.startswith("linux"):
            continue
        # the others' inputs are for the processor that they run on
        crosses = config.platform != CROSS_FROM and config.provider == "conda-forge"
        crossed = {f"{name}-cross": CROSS_FROM} if crosses else {}
        for row, build_platform in {name: config.platform, **crossed}.items():
            rows[row] = [
                f"{package.subdir}/{package.file_name}"
                for recipe in pyg_recipes(root)
                for package in render(config, recipe, build_platform=build_platform)
            ]
    return rows


def compare(file: Path, found: Mapping[str, Sequence[str]], *, renew: bool) -> None:
    """Compare the names found with those that a file keeps, after writing them to it if it is to be renewed."""
    if renew:
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    expected = json.loads(file.read_text(encoding="utf-8"))
    assert sorted(found) == sorted(expected)
    for name, files in found.items():
        assert files == expected[name], f"{name}; if that is wanted: {RENEW}"
