"""Files that a compiler would find in place of a header, or by ``__has_include``, since they appeared or vanished.

A compiler searches a name in folders, one after the other. A file concerns an object if it is in a folder in which the
object's compiler searched, under a name by which it found a header or asked for one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from .toolchain import Toolchain
from .tree import Headers, Tree

_ASKED = re.compile(rb"__has_include(?:_next)?\s*\(\s*(?:[<\"]([^>\"\n]+)[>\"]|\w+)")
_HAS_INCLUDE = b"__has_include"
#: A macro that may be the argument of __has_include.
_NAMED = re.compile(rb"#\s*define\s+\w+\s+[<\"]([\w./+-]+)[>\"]")


def find_probes(paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the names for which files ask with ``__has_include``, by file; the value of any macro may be one."""
    found: dict[str, tuple[str, ...]] = {}
    for path in paths:
        names = set(_probed(path))
        if names:
            found[path] = tuple(sorted(names))
    return found


def _probed(path: str) -> Iterator[str]:
    if not os.path.isfile(path):
        return
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError:
        return
    if _HAS_INCLUDE not in text:
        return
    asks_for_macro = False
    for question in _ASKED.finditer(text):
        if question[1]:
            yield os.fsdecode(question[1])
        else:
            asks_for_macro = True
    if asks_for_macro:
        yield from map(os.fsdecode, _NAMED.findall(text))


@dataclass
class _Name:
    """A part of a path, with the parts that may follow."""

    objects: int = 0  #: that found a header under this name, or asked for one
    below: dict[str, _Name] = field(default_factory=dict)

    def add(self, parts: Iterable[str], objects: int) -> None:
        """Add a name that ends below this part."""
        node = self
        for part in parts:
            node = node.below.setdefault(part, _Name())
        node.objects |= objects


@dataclass(frozen=True)
class Shadows:
    """The files that have the name of a header in a folder in which an object's compiler searched it."""

    tree: Tree
    toolchain: Toolchain
    headers: Headers
    probes: Mapping[str, tuple[str, ...]]  #: by file
    aliases: Mapping[str, str]  #: links to headers and their folders, with the paths that they lead to

    def candidates(self) -> dict[str, int]:
        """Return the existing files, headers in use included, with the objects that they concern."""
        found: dict[str, int] = {}
        listed: dict[str, frozenset[str]] = {}
        for folder, objects in self._folders.items():
            for path, concerned in _walk(folder, self._names, objects, listed):
                found[path] = found.get(path, 0) | concerned
        return {path: objects & ~self.headers.readers.get(path, 0) for path, objects in found.items()}

    def concerned(self, path: str) -> int:
        """Return the objects that a file concerns, whether it exists or not."""
        objects = 0
        parts = path.split("/")
        for number in range(1, len(parts)):
            searching = self._folders.get("/".join(parts[:number]), 0)
            node: _Name | None = self._names
            for part in parts[number:]:
                node = node.below.get(part) if node else None
            if node:
                objects |= searching & node.objects
        return objects

    @cached_property
    def _folders(self) -> dict[str, int]:
        """The folders in which headers are searched, with the objects whose compiler searches there."""
        found = dict(self._include_folders)
        for path, objects in self.headers.readers.items():
            _add_folder(found, os.path.dirname(path), objects)  # for #include "..." in a header
        return found

    @cached_property
    def _include_folders(self) -> dict[str, int]:
        """The folders that commands name, and the compilers' own."""
        by_folders: dict[tuple[str, ...], int] = {}
        for number, name in enumerate(self.headers.objects):
            edge = self.tree.made.get(name)
            if edge is None:
                continue
            own = self.toolchain.include_folders.get(self.tree.language(edge), ())
            searched = (*self.tree.include_folders(edge), *map(os.path.normpath, own))
            by_folders[searched] = by_folders.get(searched, 0) | 1 << number
        found: dict[str, int] = {}
        for searched, objects in by_folders.items():
            for folder in searched:
                _add_folder(found, folder, objects)
        return found

    @cached_property
    def _names(self) -> _Name:
        """The names under which objects found headers in these folders, or asked for them.

        A header that was found next to the including one is left out: that place is the first.
        """
        names = _Name()
        for path, objects in self.headers.readers.items():
            for spelling in self._spellings(path):
                parts = spelling.split("/")
                for number in range(1, len(parts)):
                    searching = self._include_folders.get("/".join(parts[:number]), 0)
                    if searching & objects:
                        names.add(parts[number:], searching & objects)
        for path, probed in self.probes.items():
            for name in probed:
                names.add(os.path.normpath(name).split("/"), self.headers.readers.get(path, 0))
        return names

    def _spellings(self, path: str) -> Iterator[str]:
        """Yield a path, and the paths by which links lead to it."""
        yield path
        real = self.tree.real(path)
        place = real
        while place != os.sep:
            for alias in self._by_target.get(place, ()):
                yield alias + real[len(place) :]
            place = os.path.dirname(place)

    @cached_property
    def _by_target(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for alias, target in self.aliases.items():
            found.setdefault(target, []).append(alias)
        return found


def _add_folder(folders: dict[str, int], folder: str, objects: int) -> None:
    """Add a folder, and the one above it: a name may begin with "../"."""
    for place in (folder, os.path.dirname(folder)):
        folders[place] = folders.get(place, 0) | objects


def _walk(
    folder: str, names: _Name, objects: int, listed: dict[str, frozenset[str]]
) -> Iterator[tuple[str, int]]:
    """Yield the files below a folder that have one of the names, and the objects that they concern."""
    for name in _list(folder, listed) & names.below.keys():
        node = names.below[name]
        path = f"{folder}/{name}"
        if node.objects & objects and not os.path.isdir(path):
            yield path, node.objects & objects
        if node.below:
            yield from _walk(path, node, objects, listed)


def _list(folder: str, listed: dict[str, frozenset[str]]) -> frozenset[str]:
    if folder not in listed:
        try:
            listed[folder] = frozenset(os.listdir(folder))
        except OSError:  # also for a file
            listed[folder] = frozenset()
    return listed[folder]
