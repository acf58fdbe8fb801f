"""Run CMake again in a configured tree, and keep the dates of unchanged files.

``file(WRITE)`` in a CMakeLists.txt writes on every run (PyTorch's ``empty.cpp``, the source of libtorch.so), and ninja
compares only dates: every run of CMake would recompile and relink unchanged files. Files with the same content as
before get their dates back. `instead_of_cmake` is for a back end that calls CMake itself.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from .cmake_cache import load
from .ninja_dry_run import BUILD_FILE, Edge, Graph, NinjaError
from .whole_walk import walk

SOURCES = frozenset(
    [".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hpp", ".hh", ".inc", ".inl", ".def", ".in", ".proto"]
)
_NINJAS_OWN = ".ninja_"
# Folders of copies, not of the tree's own files: of installed files by setup.py, and for undoing by the Python swap.
_COPIES = ("lib.", "bdist.", "temp.", "python-swap.")


class RegenerateError(Exception):
    """CMake failed; the message ends with CMake's last lines, if these were not shown."""


def regenerate(build_dir: Path, arguments: Sequence[str] = (), *, log: Path | None = None) -> int:
    """Run CMake in a configured tree, with the program that configured it; return the number of unchanged files.

    `log`: file for CMake's output; default: the output is shown.

    Raises CacheError, NinjaError, RegenerateError.
    """
    program = load(build_dir / "CMakeCache.txt").get("CMAKE_COMMAND", "cmake")
    before = _snapshot(build_dir)
    command = [program if os.path.exists(program) else "cmake", *arguments, str(build_dir)]
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            stdout=subprocess.PIPE if log else None,
            stderr=subprocess.STDOUT if log else None,
        )
    except OSError as error:
        raise RegenerateError(f"cannot run {command[0]}: {error.strerror}") from error
    # also after a failure: the next run would take the new dates for those of changed files
    restored = _restore_times(before)
    if log:
        log.write_text(result.stdout, errors="replace")
    if result.returncode:
        lines = last_lines(result)
        raise RegenerateError(f"{' '.join(command)} failed with exit code {result.returncode}{lines}")
    return restored


def last_lines(done: subprocess.CompletedProcess[str]) -> str:
    """Return a line break and the last lines of a program's output; an empty string if it was not captured."""
    if done.stdout is None:
        return ""
    return "\n" + "\n".join(done.stdout.splitlines()[-30:])


def instead_of_cmake(arguments: Sequence[str]) -> int:
    """Run ``cmake`` and return its exit code; keep the dates of unchanged files if it configures (``-B BUILD_DIR``)."""
    before: Mapping[Path, tuple[os.stat_result, bytes]] = {}
    build_dir = _find_build_dir(arguments)
    if build_dir:
        before = _snapshot(Path(build_dir))
    code = subprocess.run(["cmake", *arguments]).returncode
    _restore_times(before)
    return code


def _find_build_dir(arguments: Sequence[str]) -> str:
    """Return the folder of ``-B``, which is in the same word or the next one; an empty string if there is none."""
    for number, word in enumerate(arguments):
        if word == "-B":
            return "".join(arguments[number + 1 : number + 2])
        if word.startswith("-B"):
            return word.removeprefix("-B")
    return ""


def written_by_cmake(build_dir: Path) -> list[Path]:
    """Return the sources in a build folder that CMake writes (file(WRITE), configure_file), not a ninja rule."""
    return [path for path in not_made_by_ninja(build_dir) if path.suffix in SOURCES]


def not_made_by_ninja(build_dir: Path) -> list[Path]:
    """Return the files in a build folder that no ninja rule makes: configuring wrote them.

    ninja's own files are left out, and copies, whose names end as those of the tree's files.
    """
    try:
        edges = Graph(build_dir).edges
    except NinjaError:  # not configured yet, or scikit-build-core has deleted CMakeFiles/
        edges = []
    made: set[str] = set()
    for edge in edges:
        if not edge.is_phony:
            made.update(edge.outputs)
    # CMake makes these outputs itself, and again if ninja finds that one of its inputs is newer
    made -= _made_by_cmake(edges)
    found = []
    for path in _files(build_dir):
        if os.path.relpath(path, build_dir) not in made and path.is_file():
            found.append(path)
    return found


def _made_by_cmake(edges: Iterable[Edge]) -> set[str]:
    made: set[str] = set()
    for edge in edges:
        if BUILD_FILE in edge.outputs:
            made.update(edge.outputs)
    return made


def _files(build_dir: Path) -> Iterator[Path]:
    """Yield the files in a build folder, apart from ninja's own and copies; raises OSError for an unreadable folder."""
    for folder, folders, names in walk(build_dir):
        if folder == str(build_dir):
            folders[:] = [name for name in folders if not name.startswith(_COPIES)]
        for name in names:
            if not name.startswith(_NINJAS_OWN):
                yield Path(folder, name)


def _snapshot(build_dir: Path) -> dict[Path, tuple[os.stat_result, bytes]]:
    return {path: (path.stat(), path.read_bytes()) for path in written_by_cmake(build_dir)}


def _restore_times(before: Mapping[Path, tuple[os.stat_result, bytes]]) -> int:
    restored = 0
    for path, (status, content) in before.items():
        if path.is_file() and path.stat().st_mtime_ns != status.st_mtime_ns and path.read_bytes() == content:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            restored += 1
    return restored
