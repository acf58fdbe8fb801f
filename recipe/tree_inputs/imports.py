"""The files of all modules that a Python script imports, directly or through one another.

The standard library's modulefinder fails at folders without ``__init__.py``.
"""

from __future__ import annotations

import ast
import glob
import os
from collections.abc import Iterable, Iterator, Sequence


def find_imported(files: Iterable[str], folders: Sequence[str]) -> set[str]:
    """Return the files of modules below `folders` that Python files import, the files themselves included.

    Raises SyntaxError, ValueError: A file is not valid Python.
    """
    found: set[str] = set()
    waiting = list(files)
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        if path.endswith(".py"):
            for place, name in _names_in(path):
                waiting += find_module(name, [place] if place else [os.path.dirname(path), *folders])
    return found


def find_module(name: str, folders: Iterable[str]) -> list[str]:
    """Return the files of a module and of the packages that it is in, from the first folder that has it."""
    parts = name.split(".")
    for folder in folders:
        found: list[str] = []
        for number in range(1, len(parts) + 1):
            found += _files_of(os.path.join(folder, *parts[:number]))
        if found:
            return found
    return []


def _files_of(place: str) -> list[str]:
    paths = [f"{place}.py", os.path.join(place, "__init__.py"), *glob.glob(f"{glob.escape(place)}.*so")]
    return list(filter(os.path.isfile, paths))


def _names_in(path: str) -> Iterator[tuple[str, str]]:
    """Yield the modules that a file imports; for a relative import after the folder in which it is searched."""
    with open(path, "rb") as file:
        tree = ast.parse(file.read())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield "", alias.name
        elif isinstance(node, ast.ImportFrom):
            folder = ""
            if node.level:
                folder = os.path.normpath(os.path.join(path, *[os.pardir] * node.level))
            for alias in node.names:
                # the name may be a module of the package, or a value in it
                yield folder, f"{node.module}.{alias.name}" if node.module else alias.name
