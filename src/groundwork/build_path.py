"""The paths that compilers and build scripts can handle. Standard library only."""

from __future__ import annotations

import re

from groundwork.errors import PreflightError

#: The engine pads prefixes below a state's path to 255 characters, and work folders are deeper than prefixes.
_LONGEST = 160
_SAFE = re.compile(r"[A-Za-z0-9_./+@=-]+")


def check_build_path(path: str) -> None:
    """Check that compilers and build scripts can handle the path of a state folder.

    Raises PreflightError: It is too long, or contains another character than `_SAFE`, such as a space.
    """
    if len(path) > _LONGEST or not _SAFE.fullmatch(path):
        raise PreflightError(
            f"{path}: compilers and build scripts cannot handle this path of the output folder",
            f"pass --output with a path of at most {_LONGEST} letters, digits and _./+@=-",
        )
