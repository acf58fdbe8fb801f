"""The user's home and cache folders; a container's user id may have none. Standard library only."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from groundwork.errors import PreflightError


def home_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the user's home folder; None if neither HOME nor the user database gives an absolute path."""
    named = environ.get("HOME")
    if named is None:
        named = os.path.expanduser("~")
    if not os.path.isabs(named):
        return None
    return Path(named)


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the cache that configs share: ``MEGABUILD_CACHE``, or a folder in the user's cache folder.

    Raises PreflightError: The user has no home folder.
    """
    if named := environ.get("MEGABUILD_CACHE", ""):
        return Path(named).absolute()
    caches = environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(caches):
        return Path(caches, "megabuild")
    home = home_folder(environ)
    if home is None:
        raise PreflightError(
            f"HOME is {environ.get('HOME', 'not set')!r}: this user has no home folder",
            "set MEGABUILD_CACHE to a folder for the cache, or HOME to an absolute path",
        )
    if sys.platform == "darwin":
        return home / "Library/Caches/megabuild"
    return home / ".cache/megabuild"


def replace_home(environ: MutableMapping[str, str]) -> None:
    """If the user has no home folder, point caches of libraries and programs to a folder in ``MEGABUILD_CACHE``."""
    if home_folder(environ) is None and (named := environ.get("MEGABUILD_CACHE", "")):
        environ.pop("HOME", None)
        environ.setdefault("XDG_CACHE_HOME", os.path.join(os.path.abspath(named), "others"))


def expanded(path: str) -> Path:
    """Return a user's path as an absolute one; ``~`` is the home folder if there is one."""
    return Path(os.path.expanduser(path)).absolute()
