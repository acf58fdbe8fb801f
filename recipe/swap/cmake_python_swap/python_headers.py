"""Detect changed headers under the same path, which ninja cannot.

ninja compares dates, and a package manager gives headers the dates of their package: NumPy 2.2 that replaces NumPy 2.1
is older than every object compiled with 2.1. For another Python the paths differ, which changes command lines. For the
same Python (staging's, or another environment under the same path) only the content differs. Standard library only,
CPython >= 3.10.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from .atomic_file import write_atomically
from .ninja_dry_run import Graph
from .python_facts import PythonFacts
from .whole_walk import below

RECORD = "python-headers.json"


def changed(build_dir: Path, facts: PythonFacts) -> bool:
    """Return whether the headers have changed in the same folders since the last swap; False without a record."""
    try:
        before = json.loads((build_dir / RECORD).read_text())
    except (OSError, ValueError):
        return False
    now = _state(facts)
    return isinstance(before, dict) and before.get("folders") == now["folders"] and before != now


def record(build_dir: Path, facts: PythonFacts) -> None:
    """Record the headers with which the tree's Python side will be compiled."""
    write_atomically(build_dir / RECORD, json.dumps(_state(facts), indent=2).encode())


def forget_objects(build_dir: Path, targets: Iterable[str]) -> int:
    """Delete the objects of CMake targets, so that ninja recompiles them; return their number."""
    graph = Graph(build_dir)
    wanted = frozenset(targets)
    deleted = 0
    for output, edge in graph.by_output.items():
        path = build_dir / output
        if output.endswith(".o") and graph.target(edge) in wanted and path.exists():
            path.unlink()
            deleted += 1
    return deleted


def _state(facts: PythonFacts) -> dict[str, object]:
    folders = [folder for folder in (facts.include, facts.numpy_include, facts.pybind11_include) if folder]
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(below(Path(folder))):
            if path.suffix != ".h":
                continue
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{path.relative_to(folder)} {content}\n".encode("utf-8", "surrogateescape"))
    return {"folders": folders, "sha256": digest.hexdigest()}
