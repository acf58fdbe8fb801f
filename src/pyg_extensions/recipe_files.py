"""Files of the extensions' recipes that ``install-pyg`` uses, too; the installed program has copies of them."""

from __future__ import annotations

from pathlib import Path

from groundwork.checkout import ROOT

#: Copies in the installed program; pyproject.toml makes them.
_INSTALLED = Path(__file__).with_name("recipe")
_VARIANT = "variant.yaml"


def recipe_file(name: str) -> Path:
    """Return a file of ``recipe/pyg/common``."""
    if _INSTALLED.is_dir():
        return _INSTALLED / name
    return ROOT / "recipe" / "pyg" / "common" / name


def variant_file() -> Path:
    """Return the config whose versions and architectures ``install-pyg`` takes."""
    if _INSTALLED.is_dir():
        return _INSTALLED / _VARIANT
    return ROOT / ".ci_support" / "linux_64_cpu.yaml"
