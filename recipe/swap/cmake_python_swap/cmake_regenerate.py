"""Run CMake again in a configured tree, and keep the dates of unchanged files.

``file(WRITE)`` in a CMakeLists.txt writes on every run (PyTorch's ``empty.cpp``, the source of libtorch.so), and ninja
compares only dates: every run of CMake would recompile and relink unchanged files. Files with the same content as
before get their dates back. `instead_of_cmake` is for a back end that calls CMake itself.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .cmake_cache import load
from .ninja_dry_run import Graph, NinjaError

_SOURCES = frozenset(
    [".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hpp", ".hh", ".inc", ".inl", ".def", ".in", ".proto"]
)


class RegenerateError(Exception):
    """CMake failed; the message ends with CMake's last lines."""


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
            stdout=None if log is None else subprocess.PIPE,
            stderr=None if log is None else subprocess.STDOUT,
        )
    except OSError as error:
        raise RegenerateError(f"cannot run {command[0]}: {error.strerror}") from error
    if log is not None:
        log.write_text(result.stdout, errors="replace")
    if result.returncode:
        lines = "" if log is None else "\n" + "\n".join(result.stdout.splitlines()[-30:])
        raise RegenerateError(f"{' '.join(command)} failed with exit code {result.returncode}{lines}")
    return _restore_times(before)


def instead_of_cmake(arguments: Sequence[str]) -> int:
    """Run ``cmake``, and keep the dates of unchanged files if it configures (``-BBUILD_DIR``); return its exit code."""
    build_dir = next((Path(word[2:]) for word in arguments if word.startswith("-B") and word != "-B"), None)
    before = {} if build_dir is None else _snapshot(build_dir)
    code = subprocess.run(["cmake", *arguments]).returncode
    _restore_times(before)
    return code


def written_by_cmake(build_dir: Path) -> list[Path]:
    """Return the sources in a build folder that CMake writes (file(WRITE), configure_file), not a ninja rule."""
    try:
        edges = Graph(build_dir).edges
    except NinjaError:  # not configured yet, or scikit-build-core has deleted CMakeFiles/
        edges = []
    made = {output for edge in edges if edge.rule != "phony" for output in edge.outputs}
    found = []
    for folder, folders, names in os.walk(build_dir):
        inside = os.path.relpath(folder, build_dir)
        if inside == ".":
            # copies, not the tree's own files: of installed files by setup.py, and for undoing by the Python swap
            folders[:] = [
                each for each in folders if not each.startswith(("lib.", "bdist.", "temp.", "python-swap."))
            ]
        for name in names:
            path = os.path.normpath(os.path.join(inside, name))
            if os.path.splitext(name)[1] in _SOURCES and path not in made and (build_dir / path).is_file():
                found.append(build_dir / path)
    return found


def _snapshot(build_dir: Path) -> dict[Path, tuple[os.stat_result, bytes]]:
    return {path: (path.stat(), path.read_bytes()) for path in written_by_cmake(build_dir)}


def _restore_times(before: Mapping[Path, tuple[os.stat_result, bytes]]) -> int:
    restored = 0
    for path, (status, content) in before.items():
        if path.is_file() and path.stat().st_mtime_ns != status.st_mtime_ns and path.read_bytes() == content:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            restored += 1
    return restored
