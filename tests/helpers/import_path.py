"""Where the product's packages are, for programs that tests start. It imports nothing of the product."""

from __future__ import annotations

import os
from pathlib import Path


def packages_path(repository: Path) -> str:
    """Return ``PYTHONPATH`` for the packages of a checkout; cuda_code belongs to recipes."""
    return os.pathsep.join((str(repository / "src"), str(repository / "recipe" / "pyg" / "common")))
