"""Megabuild driver for the PyTorch family of conda packages."""

import sys
from pathlib import Path

# The recipes' own modules, which also run where this package is not: imported, not repeated.
_RECIPES = str(Path(__file__).resolve().parents[2] / "recipe" / "pyg" / "common")
if _RECIPES not in sys.path:
    sys.path.append(_RECIPES)
