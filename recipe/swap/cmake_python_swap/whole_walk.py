"""Walk through a folder of which every part counts: a folder that cannot be read is an error, not an empty one.

Standard library only, because build scripts run it with any Python. The Python swap, which is usable alone, has a copy.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def walk(top: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Do as ``os.walk``; a missing folder has nothing.

    Raises OSError: A folder cannot be read.
    """
    return os.walk(top, onerror=_refuse)


def below(top: Path) -> Iterator[Path]:
    """Yield all files below a folder, and links but for those to folders; raises OSError as :func:`walk`."""
    for folder, _, names in walk(top):
        for name in names:
            yield Path(folder, name)


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
