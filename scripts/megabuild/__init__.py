"""Megabuild driver for the PyTorch family of conda packages."""

import sys
from pathlib import Path

# The recipes' own modules, which also run where this package is not: imported, not repeated.
_RECIPES = Path(__file__).resolve().parents[2] / "recipe"
sys.path += [path for path in (f"{_RECIPES}/pyg/common",) if path not in sys.path]
