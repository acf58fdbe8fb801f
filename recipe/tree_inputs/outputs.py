"""Remove outputs of a tree, so that ninja makes them again."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable
from pathlib import Path

from cmake_python_swap.atomic_file import write_atomically

from .tree import Tree

_LOG = ".ninja_log"
_DEPS = ".ninja_deps"
_NAME = 3  # the field of ninja's log with the output
_FIELDS = 5
#: sync_tree.py's list of the sources, in the tree's top folder.
_SOURCES = ".megabuild-sync.json"


def remove(tree: Tree, outputs: Iterable[str]) -> tuple[str, ...]:
    """Delete files that a compiler or linker made, and make ninja forget all other outputs; return the names.

    The files of other outputs stay. A generator that writes only changed files keeps the dates of the others, and ninja
    then recompiles no object that reads them.
    """
    removed: list[str] = []
    forgotten: set[str] = set()
    for name in outputs:
        path = tree.absolute(name)
        if not os.path.lexists(path):
            continue
        removed.append(name)
        if not tree.made[name].makes_binary:
            forgotten.add(name)
        elif not os.path.isdir(path):
            os.unlink(path)
    if forgotten:
        _forget(Path(tree.build), forgotten)
    return tuple(removed)


def remove_all(build: Path, tree: Tree | None) -> bool:
    """Make ninja forget all outputs, and delete those of compilers and linkers; return whether there were any."""
    had_log = os.path.lexists(build / _LOG)
    if tree is not None:
        binaries: list[str] = []
        for name, edge in tree.made.items():
            if edge.makes_binary:
                binaries.append(name)
        remove(tree, binaries)
    for name in (_LOG, _DEPS):
        (build / name).unlink(missing_ok=True)
    return had_log


def remove_dead(tree: Tree) -> tuple[str, ...]:
    """Delete files in the tree that a former configuration made, and the present one neither makes nor reads.

    Generated headers would be installed otherwise. Returns: the names.
    """
    read = set(tree.made)
    for edge in tree.graph.edges:
        read.update(edge.inputs)
    sources = read_sources(Path(tree.root))
    used = set(map(tree.absolute, read))
    removed: list[str] = []
    for name in _logged(Path(tree.build, _LOG)):
        path = tree.absolute(name)
        is_source = os.path.relpath(path, tree.root) in sources
        if path in used or is_source or tree.is_outside(path) or not os.path.lexists(path):
            continue
        if not os.path.isdir(path) or os.path.islink(path):
            os.unlink(path)
            removed.append(name)
    return tuple(removed)


def read_sources(root: Path) -> Collection[str]:
    """Return the names of a tree's sources; none if sync_tree.py did not copy them.

    Raises OSError: They cannot be read: without them, sources would be taken for outputs.
    """
    try:
        names = json.loads((root / _SOURCES).read_bytes())
    except (FileNotFoundError, ValueError):
        return ()
    return frozenset(map(str, names)) if isinstance(names, list) else ()


def _logged(log: Path) -> list[str]:
    """Return the outputs in ninja's log, each once."""
    names: dict[str, None] = {}
    for line in _lines(log):
        name = _output_in(line)
        if name:
            names[name] = None
    return list(names)


def _forget(build: Path, outputs: Collection[str]) -> None:
    kept: list[bytes] = []
    for line in _lines(build / _LOG):
        if _output_in(line) not in outputs:
            kept.append(line)
    write_atomically(build / _LOG, b"".join(kept))


def _lines(log: Path) -> list[bytes]:
    try:
        return log.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []


def _output_in(line: bytes) -> str:
    fields = line.split(b"\t")
    return os.fsdecode(fields[_NAME]) if len(fields) == _FIELDS else ""
