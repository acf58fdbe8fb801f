"""The files outside a tree that its build statements, CMake and the programs of both read, headers left out."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cmake_python_swap.ninja_dry_run import Edge

from . import generators
from .search import LinkSearch
from .toolchain import Toolchain, find_toolchain
from .tree import Tree

#: The recipe's folder, which has launchers that change a compiler's command.
_RECIPE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Inputs:
    """The inputs of a tree by what reads them; all paths are absolute."""

    tree: Tree
    toolchain: Toolchain
    #: for a language: the files that all of its outputs depend on
    languages: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: Tree) -> Inputs:
        """Find the inputs of a tree; asks its compilers."""
        toolchain = find_toolchain(tree)
        languages = dict(toolchain.programs)
        for language, paths in _launchers(tree).items():
            languages[language] = tuple(dict.fromkeys([*languages.get(language, ()), *paths]))
        return cls(tree=tree, toolchain=toolchain, languages=languages)

    def of_statement(self, edge: Edge) -> tuple[str, ...]:
        """Return the files that a statement reads, without headers and the files of its language."""
        linked = LinkSearch(self.tree, self.toolchain).inputs(edge)
        if self.tree.language(edge):
            return linked
        return tuple(dict.fromkeys([*linked, *generators.files_of(self.tree, edge)]))

    def of_configure(self) -> Iterator[str]:
        """Yield the files that CMake read or found, and the programs that run it."""
        tree = self.tree
        paths = list(map(tree.absolute, tree.cmake_files))
        for value in tree.cache.values():
            paths += _absolute_paths(value)
        for program in (tree.cache.get("CMAKE_COMMAND", "cmake"), tree.ninja):
            paths.append(shutil.which(program) or program)
        paths.append(sys.executable)
        for path in dict.fromkeys(paths):
            if tree.is_outside(path) and os.path.isfile(path):
                yield path

    def all(self) -> set[str]:
        """Return all these files."""
        found = set(self.of_configure())
        for edge in self.tree.statements:
            found.update(self.of_statement(edge))
        for paths in self.languages.values():
            found.update(paths)
        return found


def _absolute_paths(value: str) -> Iterator[str]:
    """Yield the absolute paths in one of CMake's lists."""
    for word in value.split(";"):
        if word.startswith("/"):
            yield os.path.normpath(word)


def _launchers(tree: Tree) -> dict[str, list[str]]:
    """Return the recipe's files that the commands of a language name, by language."""
    pattern = re.compile(rf"{re.escape(str(_RECIPE))}/[\w./-]+")
    found: dict[str, list[str]] = {}
    for edge in tree.statements:
        language = tree.language(edge)
        if not language:
            continue
        rule = tree.graph.rules.get(edge.rule, {})
        text = f"{rule.get('command', '')} {edge.variables.get('LAUNCHER', '')}"
        names = found.setdefault(language, [])
        for path in pattern.findall(text):
            if path not in names and os.path.isfile(path):
                names.append(path)
    return found
