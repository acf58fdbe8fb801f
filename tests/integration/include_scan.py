"""Which headers a source includes, found by reading rather than by compiling.

A preprocessor run over all of PyTorch's sources takes ten minutes and more of CPU time. This scan follows ``#include``
lines along the include paths of each command line, caches what it has read, and takes seconds. It takes every
``#include`` there is, whether the preprocessor would or not: the list it finds is a superset of the compiler's.
Headers below ``/usr`` and macros in place of names (``#include FOO``) are not followed. One condition is known: the
recipe's own, which is false for all sources of PyTorch.

As a script, writes a dependency file for each entry of a compile_commands.json whose command is not the one before::

    python include_scan.py BUILD_DIR OUTPUT_DIR
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)

#: See recipe/separate_blas.py.
_SEPARATE = re.compile(rb"^#ifndef AT_BLAS_CONFIG_SEPARATE$.*?^#endif$", re.MULTILINE | re.DOTALL)


class IncludeScan:
    """Finds headers; what was read once is remembered, so drop the object when headers change."""

    def __init__(self) -> None:
        self._listings: dict[str, frozenset[str]] = {}
        self._included: dict[str, tuple[tuple[bool, str], ...]] = {}
        self._resolved: dict[tuple[tuple[str, ...], str], tuple[str, ...]] = {}

    def headers(self, source: str, search: tuple[str, ...]) -> set[str]:
        """All headers that a source includes, directly or not, along the folders of ``search``."""
        found: set[str] = set()
        waiting = [source]
        while waiting:
            for header in self._direct(waiting.pop(), search):
                if header not in found:
                    found.add(header)
                    waiting.append(header)
        return found

    def _direct(self, path: str, search: tuple[str, ...]) -> tuple[str, ...]:
        key = (search, path)
        if key not in self._resolved:
            self._resolved[key] = tuple(self._resolve(path, search))
        return self._resolved[key]

    def _resolve(self, path: str, search: tuple[str, ...]) -> Iterable[str]:
        for quoted, name in self._names(path):
            for folder in (os.path.dirname(path), *search) if quoted else search:
                candidate = os.path.normpath(os.path.join(folder, name))
                if self._exists(candidate):
                    yield candidate
                    break

    def _names(self, path: str) -> tuple[tuple[bool, str], ...]:
        if path not in self._included:
            content = b"" if path.startswith("/usr/") else Path(path).read_bytes()
            content = _SEPARATE.sub(b"", content)
            names = tuple((m[1] == b'"', os.fsdecode(m[2])) for m in _INCLUDE.finditer(content))
            self._included[path] = names
        return self._included[path]

    def _exists(self, path: str) -> bool:
        folder, name = os.path.split(path)
        if folder not in self._listings:
            try:
                self._listings[folder] = frozenset(
                    each.name for each in os.scandir(folder) if not each.is_dir()
                )
            except OSError:
                self._listings[folder] = frozenset()
        return name in self._listings[folder]


def search_path(command: str, directory: str) -> tuple[str, ...]:
    """The include folders of a compiler's command line, in the order of search (-I before -isystem)."""
    words = shlex.split(command)
    plain, system = [], []
    for index, word in enumerate(words):
        if word.startswith("-I"):
            plain.append(word[2:] or words[index + 1])
        elif word == "-isystem":
            system.append(words[index + 1])
    return tuple(os.path.normpath(os.path.join(directory, folder)) for folder in plain + system)


def output(command: str) -> str:
    """The object file that a command line makes."""
    words = shlex.split(command)
    return words[words.index("-o") + 1]


def write_depfiles(build_dir: Path, folder: Path) -> int:
    """Write ``folder/<object>.d`` for every object whose command line is new; returns how many."""
    record = folder / "commands.json"
    known: dict[str, str] = json.loads(record.read_text()) if record.exists() else {}
    scan = IncludeScan()
    written = 0
    for entry in json.loads((build_dir / "compile_commands.json").read_text()):
        name = output(entry["command"])
        if known.get(name) == entry["command"]:
            continue
        headers = scan.headers(entry["file"], search_path(entry["command"], entry["directory"]))
        depfile = folder / f"{name}.d"
        depfile.parent.mkdir(parents=True, exist_ok=True)
        # The stub compiler may have handed it out as a hard link: never write through one.
        depfile.unlink(missing_ok=True)
        depfile.write_text(f"{name}: {entry['file']} " + " ".join(sorted(headers)) + " \n")
        known[name] = entry["command"]
        written += 1
    record.write_text(json.dumps(known))
    return written


if __name__ == "__main__":
    print(write_depfiles(Path(sys.argv[1]), Path(sys.argv[2])))
