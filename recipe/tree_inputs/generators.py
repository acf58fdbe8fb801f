"""The programs outside a tree that generate its sources, such as protoc and Python, and what these read."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence

from cmake_python_swap.ninja_dry_run import Edge

from .contents import UNKNOWN, Contents, digest_of, files_below
from .imports import find_imported, find_module
from .toolchain import libraries_of
from .tree import Tree, split

_CMAKE = "cmake"
_PYTHON = re.compile(r"python[\d.]*t?$")
_ASK_PYTHON = (
    "import json, sys, sysconfig; "
    "print(json.dumps([sysconfig.get_path('stdlib'), sysconfig.get_path('platstdlib'), "
    "*(folder for folder in sys.path if folder)]))"
)
_CODE = (".py", ".so")
#: Folders of the standard library that are no part of it, or that no generator imports.
_NO_CODE = ("site-packages", "dist-packages", "__pycache__", "test", "idlelib", "config-")


def words_of(tree: Tree, edge: Edge) -> list[str]:
    """Return the words of a statement that runs a program; the programs as absolute paths."""
    found: list[str] = []
    is_program = True
    for word in split(tree.graph.expand(edge.variables.get("COMMAND", ""), {})):
        if word in ("&&", "||", ";"):
            is_program = True
            continue
        if is_program and word not in ("cd", ":"):
            word = shutil.which(word) or word
        is_program = False
        found.append(word)
    return found


def files_of(tree: Tree, edge: Edge) -> Iterator[str]:
    """Yield the files outside the tree that the command of a statement names; not CMake, whose change is no content."""
    for word in words_of(tree, edge):
        path = os.path.normpath(word)
        if (
            word.startswith("/")
            and os.path.basename(path) != _CMAKE
            and tree.is_outside(path)
            and os.path.isfile(path)
        ):
            yield path


def python_of(tree: Tree, edge: Edge) -> str:
    """Return the Python that a statement runs, or ""."""
    for path in files_of(tree, edge):
        if _PYTHON.search(path):
            return path
    return ""


def digest(tree: Tree, python: str, scripts: Sequence[Sequence[str]], contents: Contents) -> str:
    """Return a hash over the standard library of a Python, and all modules that its scripts import.

    `scripts`: the words of each command.

    Returns: UNKNOWN if the Python does not run.
    """
    folders = _ask(python)
    if not folders:
        return UNKNOWN
    files = [python, *libraries_of([python])]
    for folder in dict.fromkeys(folders[:2]):
        files += _library_files(folder)
    files += _imported(tree, folders, scripts)
    return digest_of({path: contents.of(path) for path in files})


def _ask(python: str) -> list[str]:
    """Return the folders of a Python's standard library, and those in which it searches modules."""
    try:
        done = subprocess.run(
            [python, "-c", _ASK_PYTHON], stdin=subprocess.DEVNULL, capture_output=True, cwd="/", check=True
        )
        folders = json.loads(done.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return []
    return list(map(str, folders))


def _library_files(folder: str) -> Iterator[str]:
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(_NO_CODE)]
        for name in names:
            if name.endswith(_CODE):
                yield os.path.join(here, name)


def _imported(tree: Tree, folders: Sequence[str], scripts: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the files outside the tree of all modules that scripts import, directly or through one another."""
    packages = [folder for folder in folders[2:] if _has_packages(folder, folders[:2])]
    searched = [tree.root, *packages]
    files: list[str] = []
    for words in scripts:
        for number, word in enumerate(words):
            path = tree.absolute(word)
            if word == "-m":
                module = "".join(words[number + 1 : number + 2])
                files += find_module(f"{module}.__main__", searched)  # a package runs that one
            elif word.endswith(".py") and os.path.isfile(path):
                files.append(path)
    try:
        found = find_imported(files, searched)
    except (SyntaxError, ValueError, OSError):
        yield from _all_code(packages)  # then any module may be imported
        return
    yield from filter(tree.is_outside, sorted(found))


def _has_packages(folder: str, library: Sequence[str]) -> bool:
    """Return whether a folder of a Python's search path is none of its standard library."""
    return folder not in library and not folder.endswith((".zip", "lib-dynload"))


def _all_code(folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        for path in files_below(folder):
            if path.endswith(_CODE):
                yield path


def digests(tree: Tree, contents: Contents) -> dict[str, str]:
    """Return :func:`digest` for each Python that statements of a tree run."""
    scripts: dict[str, list[Sequence[str]]] = {}
    for edge in tree.statements:
        python = python_of(tree, edge) if not tree.language(edge) else ""
        if python:
            scripts.setdefault(python, []).append(words_of(tree, edge))
    return {python: digest(tree, python, words, contents) for python, words in scripts.items()}
