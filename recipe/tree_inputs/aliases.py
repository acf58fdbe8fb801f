"""Links to headers, which lists of headers may not name.

GCC lists a system header by its path without links if that is shorter. An object that found ``linked.h``, a link to
``one.h``, then only lists ``one.h``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from .contents import entries_below
from .tree import Headers, Tree

#: The link to the environment by which compile_cached.sh names headers.
_ENVIRONMENT = "BUILD_ENV_LINK"


def find_aliases(tree: Tree, folders: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the links in folders in which headers are searched and in the tree, with the paths that they lead to.

    A folder that is reached through a link is such a link, too, and so is $BUILD_ENV_LINK.
    """
    found: dict[str, str] = {}
    if environment.get(_ENVIRONMENT):
        found[environment[_ENVIRONMENT]] = os.path.realpath(environment[_ENVIRONMENT])
    for folder in (*folders, tree.root):
        real = os.path.realpath(folder)
        if real != folder:
            found[folder] = real
        for entry in entries_below(folder):
            if entry.is_symlink():
                found[entry.path] = os.path.realpath(entry.path)
    return found


def moved(former: Mapping[str, str]) -> dict[str, str]:
    """Return those of former links that lead elsewhere now, or no longer exist."""
    elsewhere: dict[str, str] = {}
    for path, real in former.items():
        if os.path.realpath(path) != real:
            elsewhere[path] = real
    return elsewhere


def readers(tree: Tree, headers: Headers, aliases: Mapping[str, str]) -> int:
    """Return the objects that may have found a header through one of these links."""
    places = frozenset((*aliases, *aliases.values()))
    if not places:
        return 0
    objects = 0
    for path, reading in headers.readers.items():
        if _is_below(path, places) or _is_below(tree.real(path), places):
            objects |= reading
    return objects


def _is_below(path: str, places: frozenset[str]) -> bool:
    """Return whether a path is one of some places, or below one."""
    while path != os.sep:
        if path in places:
            return True
        path = os.path.dirname(path)
    return False
