"""The files that CMake, the compilers and the linker find by searching folders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cmake_python_swap.ninja_dry_run import Edge

from .contents import digest_of_lines, files_below
from .toolchain import Toolchain, named_by_script
from .tree import LINK, Tree, split

#: Folders of a prefix whose names CMake's find commands read; "*" is the name of an architecture.
_SEARCHED = ("bin", "include", "lib", "lib64", "lib/*", "share")
#: Folders of CMake's and pkg-config's files, whose names count at any depth.
_PACKAGE_FOLDERS = ("cmake", "CMake", "pkgconfig")
_SYSTEM = ("/usr", "/usr/local")
_LIBRARIES = (".so", ".a", ".dylib")


def searched_folders(tree: Tree, toolchain: Toolchain) -> tuple[str, ...]:
    """Return the folders outside the tree in which headers are searched."""
    found: set[str] = set()
    for edge in tree.statements:
        found.update(tree.include_folders(edge))
    for folders in toolchain.include_folders.values():
        found.update(map(os.path.normpath, folders))
    outside: list[str] = []
    for folder in sorted(found):
        if tree.is_outside(folder) and os.path.isdir(folder):
            outside.append(folder)
    return tuple(outside)


def include_folders(tree: Tree, toolchain: Toolchain) -> tuple[str, ...]:
    """Return these folders without those inside another one, and without prefixes, whose programs are no headers."""
    kept: list[str] = []
    for folder in searched_folders(tree, toolchain):
        is_prefix = os.path.isdir(os.path.join(folder, "bin"))
        is_covered = any(folder.startswith(f"{other}/") for other in kept)
        if not is_prefix and not is_covered:
            kept.append(folder)
    return tuple(kept)


def name_folders(environment: Mapping[str, str]) -> dict[str, str]:
    """Return a hash over the names in each folder in which CMake searches packages, programs and libraries."""
    host = environment.get("PREFIX", "")
    build = environment.get("BUILD_PREFIX", "")
    found: dict[str, str] = {}
    for prefix in (host, build, *_SYSTEM):
        if prefix:
            for folder in _searched(prefix):
                found[folder] = digest_of_lines(_names(folder))
    return found


def _searched(prefix: str) -> Iterator[str]:
    for place in _SEARCHED:
        if place.endswith("*"):
            above = os.path.join(prefix, os.path.dirname(place))
            for name in _entries(above):
                if name.endswith(("-gnu", "-linux")):
                    yield f"{above}/{name}"
        elif os.path.isdir(os.path.join(prefix, place)):
            yield os.path.join(prefix, place)


def _names(folder: str) -> Iterator[str]:
    for name in _entries(folder):
        yield name
        if name in _PACKAGE_FOLDERS:
            yield from sorted(files_below(os.path.join(folder, name)))


def _entries(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


@dataclass(frozen=True)
class LinkSearch:
    """Finds the files outside the tree that a statement links."""

    tree: Tree
    toolchain: Toolchain

    def inputs(self, edge: Edge) -> tuple[str, ...]:
        """Return the files, and the places before them that had no such file when it was linked."""
        found: dict[str, None] = {}
        for name in edge.inputs:
            found[self.tree.absolute(name)] = None
        if self.tree.language(edge) == LINK:
            found.update(dict.fromkeys(self._searched(edge)))
            for path in tuple(found):
                found.update(dict.fromkeys(self._named_by_script(path)))
        return tuple(filter(self.tree.is_outside, found))

    def _named_by_script(self, path: str) -> Iterator[str]:
        if self.tree.is_outside(path):
            yield from named_by_script(path)

    def _searched(self, edge: Edge) -> Iterator[str]:
        text = " ".join(
            edge.variables.get(name, "") for name in ("LINK_FLAGS", "LINK_PATH", "LINK_LIBRARIES")
        )
        words: list[str] = []
        for word in split(self.tree.graph.expand(text, {})):
            words += word.split(",")  # -Wl,--whole-archive,/a/libb.a
        folders: list[str] = []
        for word in words:
            if word.startswith("-L"):
                folders.append(self.tree.absolute(word[2:]))
        folders += self.toolchain.link_folders
        for word in words:
            if word.startswith("/"):
                yield os.path.normpath(word)
            elif word.startswith("-l"):
                yield from _candidates(word[2:], folders)
        for name in self.toolchain.linked:
            yield from _candidates(name, folders)


def _candidates(name: str, folders: Iterable[str]) -> Iterator[str]:
    """Yield the places in which a linker searches a library, up to the first that has it."""
    for folder in folders:
        for suffix in _LIBRARIES:
            path = os.path.join(folder, f"lib{name}{suffix}")
            yield path
            if os.path.isfile(path):
                return
