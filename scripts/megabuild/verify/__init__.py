"""What a built package, a wheel or an environment really contains."""

import sys
from pathlib import Path

# The recipes' own modules, which also run where this package is not: imported, not repeated.
_RECIPES = str(Path(__file__).resolve().parents[3] / "recipe" / "pyg" / "common")
if _RECIPES not in sys.path:
    sys.path.append(_RECIPES)
