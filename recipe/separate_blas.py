"""Move the BLAS out of what every source of PyTorch sees, so that configs that differ in it share their objects.

PyTorch tells its sources the BLAS by macros of ``ATen/Config.h``, which a third of them include, and by definitions on
every command line. About thirty files read one. This script moves all of them to ``ATen/BlasConfig.h`` and has those
files include it. Another source that reads ``AT_MKL_ENABLED()`` then does not compile, because calling an undefined
macro is an error. For users of the package, ``Config.h`` includes ``BlasConfig.h``: they see the same macros as before.

The script finds lines by their text, because one patch would not fit every release. Standard library only.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

HEADER = "ATen/BlasConfig.h"
#: Defined for PyTorch's own sources, for every BLAS.
SEPARATE = "AT_BLAS_CONFIG_SEPARATE"
_ATEN = "aten/src/ATen"
_MACRO = re.compile(r"^#define (AT_MKL_ENABLED|AT_MKL_SEQUENTIAL|AT_POCKETFFT_ENABLED)\(\).*\n", re.MULTILINE)
_END = re.compile(r"(?<=\S)\s*\Z")
_DEFINITION = re.compile(
    r"\badd_(?:compile_options|definitions)\(-D((?:BLAS|MKL)_HAS_\w+|IDEEP_USE_MKL)\)", re.IGNORECASE
)
_MODULES = ("FindBLAS", "FindMKL", "FindMKLDNN")
#: Only ideep reads this definition, for a function that PyTorch does not call: no source needs it.
_IDEEP, _CALLS_IT = "IDEEP_USE_MKL", re.compile(r"\bbernoulli_generate\b|\bideep::dropout")
_CONFIGURE = re.compile(r"^(configure_file\()Config(\.h\.in .*/)Config(\.h.*\n)", re.MULTILINE)
_PROJECT = re.compile(r"^project\(Torch\b", re.MULTILINE)
_FOLDERS = ("aten/src", "c10", "caffe2", "functorch", "torch")
_SUFFIXES = (".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".mm")


def separate(tree: Path) -> list[Path]:
    """Change PyTorch's sources in a folder, and return the files that read a macro of the BLAS.

    Raises ValueError: The sources differ from those that this script knows; some files are changed already.
    """
    config, cmake = tree / _ATEN / "Config.h.in", tree / _ATEN / "CMakeLists.txt"
    macros = _replace(config, _MACRO, "")
    _replace(config, _END, f"\n#ifndef {SEPARATE}\n#include <{HEADER}>\n#endif\n")
    modules = [tree / f"cmake/Modules/{name}.cmake" for name in _MODULES]
    removed = [match[1] for path in modules for match in _replace(path, _DEFINITION, rf"# \1: in {HEADER}")]
    definitions = [name for name in removed if name != _IDEEP]
    lines = ["#pragma once\n\n", *(match[0] for match in macros), *(f"#cmakedefine {name}\n" for name in definitions)]
    (tree / _ATEN / "BlasConfig.h.in").write_text("".join(lines))
    _replace(cmake, _CONFIGURE, r"\g<0>\1BlasConfig\2BlasConfig\3")
    _replace(tree / "CMakeLists.txt", _PROJECT, rf"add_compile_definitions({SEPARATE})\n\g<0>")
    names = re.compile(rf"\b({'|'.join([*(match[1] for match in macros), *definitions])})\b")
    readers = []
    for path, text in _sources(tree):
        if _CALLS_IT.search(text):
            raise ValueError(f"{path}: calls a function of ideep that needs {_IDEEP}")
        if names.search(text):
            path.write_text(f"#include <{HEADER}>\n{text}", errors="surrogateescape")
            readers.append(path)
    return readers


def _replace(path: Path, pattern: re.Pattern[str], replacement: str) -> list[re.Match[str]]:
    """Replace a pattern in a file, and return its matches."""
    text = path.read_text()
    matches = list(pattern.finditer(text))
    if not matches:
        raise ValueError(f"{path}: no line matches {pattern.pattern}")
    path.write_text(pattern.sub(replacement, text))
    return matches


def _sources(tree: Path) -> Iterator[tuple[Path, str]]:
    """Yield PyTorch's own sources with their text, without tests."""
    for top in _FOLDERS:
        for folder, folders, files in os.walk(tree / top):
            folders[:] = sorted(name for name in folders if name != "test")
            for name in sorted(files):
                path = Path(folder, name)
                if name.endswith(_SUFFIXES) and not path.is_symlink():
                    yield path, path.read_text(errors="surrogateescape")


if __name__ == "__main__":
    try:
        print(f"::megabuild:: blas readers={len(separate(Path(sys.argv[1])))}")
    except ValueError as error:
        sys.exit(f"error: {error}")
