"""Before a build with the stub compiler: make the generated sources, then list the headers of every object.

A preprocessor run over all of PyTorch's sources takes ten minutes and more of CPU time. This scan follows ``#include``
lines along the include paths of each command line, and takes seconds. It takes every ``#include`` there is, whether the
preprocessor would or not: the list it finds is a superset of the compiler's. Headers below ``/usr`` and macros in place
of names (``#include FOO``) are not followed. One condition is known: the recipe's own, which is false for all sources
of PyTorch.

Runs in a Debian root: standard library only; the recipe's cmake_python_swap is found through PYTHONPATH::

    python prepare_stub_build.py BUILD_DIR OUTPUT_DIR [FOLDER...]

Each FOLDER is searched after those of the command lines, and its headers are followed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from cmake_python_swap.ninja_dry_run import Graph

#: Folders that are searched last.
FURTHER = tuple(sys.argv[3:])
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
#: See recipe/separate_blas.py.
_SEPARATE = re.compile(rb"^#ifndef AT_BLAS_CONFIG_SEPARATE$.*?^#endif$", re.MULTILINE | re.DOTALL)


def generated(build_dir: Path) -> list[str]:
    """Sources and headers that custom commands make: they must be there before anybody reads what they include."""
    return sorted(
        output
        for edge in Graph(build_dir).edges
        if edge.rule == "CUSTOM_COMMAND"
        for output in edge.outputs
        if output.endswith((".h", ".cpp", ".c")) and "${" not in output
    )


def find_headers(source: str, search: tuple[str, ...]) -> set[str]:
    """All headers that a source includes, directly or not, along the folders of ``search``."""
    found: set[str] = set()
    waiting = [source]
    while waiting:
        new = set(_included(waiting.pop(), search)) - found
        found |= new
        waiting += new
    return found


@cache
def _included(path: str, search: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_resolve(path, search))


def _resolve(path: str, search: tuple[str, ...]) -> Iterable[str]:
    for quoted, name in _names(path):
        for folder in (os.path.dirname(path), *search) if quoted else search:
            candidate = os.path.normpath(os.path.join(folder, name))
            if os.path.basename(candidate) in _files(os.path.dirname(candidate)):
                yield candidate
                break


@cache
def _names(path: str) -> tuple[tuple[bool, str], ...]:
    is_followed = path.startswith(FURTHER) or not path.startswith("/usr/")
    if not is_followed:
        return ()
    content = _SEPARATE.sub(b"", Path(path).read_bytes())
    return tuple((match[1] == b'"', os.fsdecode(match[2])) for match in _INCLUDE.finditer(content))


@cache
def _files(folder: str) -> frozenset[str]:
    try:
        return frozenset(each.name for each in os.scandir(folder) if not each.is_dir())
    except OSError:
        return frozenset()


def search_path(words: list[str], directory: str) -> tuple[str, ...]:
    """The include folders of a compiler's command line, in the order of search (-I before -isystem)."""
    plain, system = [], []
    for index, word in enumerate(words):
        if word.startswith("-I"):
            plain.append(word[2:] or words[index + 1])
        elif word == "-isystem":
            system.append(words[index + 1])
    return tuple(os.path.normpath(os.path.join(directory, folder)) for folder in plain + system)


def write_depfiles(build_dir: Path, folder: Path) -> None:
    """Write ``folder/<object>.d`` for every object whose command line is not the one before."""
    record = folder / "commands.json"
    known: dict[str, str] = json.loads(record.read_text()) if record.exists() else {}
    for entry in json.loads((build_dir / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        name = words[words.index("-o") + 1]
        if known.get(name) == entry["command"]:
            continue
        headers = find_headers(entry["file"], (*search_path(words, entry["directory"]), *FURTHER))
        depfile = folder / f"{name}.d"
        depfile.parent.mkdir(parents=True, exist_ok=True)
        # The stub compiler may have handed it out as a hard link: never write through one.
        depfile.unlink(missing_ok=True)
        depfile.write_text(f"{name}: {entry['file']} " + " ".join(sorted(headers)) + " \n")
        known[name] = entry["command"]
    record.write_text(json.dumps(known))


if __name__ == "__main__":
    build, lists = map(Path, sys.argv[1:3])
    lists.mkdir(exist_ok=True)
    subprocess.run(["ninja", "-C", build, *generated(build)], check=True)
    write_depfiles(build, lists)
