"""The rendered names of every config as one JSON document, kept in the tests and compared there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from megabuild.configs.config import available, load
from megabuild.configs.render import render

TABLE_FILE = Path("tests") / "data" / "rendered.json"

#: A rehearsal differs from the real build in nothing but this.
REHEARSAL: Mapping[str, Sequence[str]] = {"torch_source": ("model",)}


def table(root: Path) -> dict[str, list[str]]:
    """Render every config, and ``<config>-rehearsal`` beside it.

    Returns
    -------
    For every config the files of its packages, ``<subdir>/<name>-<version>-<build string>.conda``, in build order.
    """
    recipe = root / "recipe" / "recipe.yaml"
    rows: dict[str, list[str]] = {}
    for name in available(root):
        config = load(root, name)
        for row, overrides in ((name, {}), (f"{name}-rehearsal", REHEARSAL)):
            packages = render(config, recipe, overrides=overrides)
            rows[row] = [
                f"{package.subdir}/{package.file_name}" for package in packages if not package.skipped
            ]
    return rows


def write_table(root: Path) -> Path:
    """Write the table to ``tests/data/rendered.json``; returns its path."""
    path = root / TABLE_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(table(root), indent=1) + "\n", encoding="utf-8")
    return path
