"""The user's own folders, also where a user has none: a container's user id without an entry. Standard library only."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from groundwork.errors import PreflightError


def home_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the user's home folder; None where neither HOME nor the system's list of users has an absolute one."""
    named = environ["HOME"] if "HOME" in environ else os.path.expanduser("~")
    return Path(named) if os.path.isabs(named) else None


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder for what configs share: ``MEGABUILD_CACHE``, or the user's cache folder."""
    if named := environ.get("MEGABUILD_CACHE", ""):
        return Path(named).absolute()
    caches, home = environ.get("XDG_CACHE_HOME", ""), home_folder(environ)
    if os.path.isabs(caches):
        return Path(caches, "megabuild")
    if home is None:
        raise PreflightError(
            f"this user has no home folder: HOME is {environ.get('HOME', 'not set')!r}",
            "set HOME to a folder's absolute path, or MEGABUILD_CACHE to a folder for what configs share",
        )
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "megabuild"


def replace_home(environ: MutableMapping[str, str]) -> None:
    """Where this user has no home folder, have libraries and programs keep their caches below ``MEGABUILD_CACHE``."""
    if home_folder(environ) is None and (named := environ.get("MEGABUILD_CACHE", "")):
        environ.pop("HOME", None)
        environ.setdefault("XDG_CACHE_HOME", os.path.join(os.path.abspath(named), "others"))


def expanded(path: str) -> Path:
    """Return a user's path as an absolute one; ``~`` is the home folder, or a name where there is none."""
    return Path(os.path.expanduser(path)).absolute()
