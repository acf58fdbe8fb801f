"""Move the BLAS out of what every source of PyTorch sees, so that configs that differ in it share their objects.

PyTorch tells its sources the BLAS by macros of ``ATen/Config.h``, which a third of them include, and by definitions on
every command line. About thirty files read one. This script moves all of them to ``ATen/BlasConfig.h`` and has those
files include it. Another source that reads ``AT_MKL_ENABLED()`` then does not compile, because calling an undefined
macro is an error. For users of the package, ``Config.h`` includes ``BlasConfig.h``: they see the same macros as before.

The script finds lines by their text, because one patch would not fit every release. In a release with other lines it
changes nothing: the build goes on, and shares less. Standard library only.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
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
#: Only ideep reads this definition, for a function that PyTorch does not call: no source needs it.
_IDEEP, _CALLS_IT = "IDEEP_USE_MKL", re.compile(r"\bbernoulli_generate\b|\bideep::dropout")
_CONFIGURE = re.compile(r"^(configure_file\()Config(\.h\.in .*/)Config(\.h.*\n)", re.MULTILINE)
_PROJECT = re.compile(r"^project\(Torch\b", re.MULTILINE)
_FOLDERS = ("aten/src", "c10", "caffe2", "functorch", "torch")
_SUFFIXES = (".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".mm")


def separate(tree: Path) -> list[Path]:
    """Change PyTorch's sources in a folder, and return the files that read a macro of the BLAS.

    Raises ValueError: The sources differ from those that this script knows; no file is changed.
    """
    config, cmake, top = (
        tree / _ATEN / "Config.h.in",
        tree / _ATEN / "CMakeLists.txt",
        tree / "CMakeLists.txt",
    )
    modules = sorted((tree / "cmake/Modules").glob("Find*.cmake"))
    macros = [match[0] for match in _matches(config, _MACRO)]
    names = [match[1] for match in _matches(config, _MACRO)]
    definitions = [match[1] for path in modules for match in _DEFINITION.finditer(_text(path))]
    if _IDEEP not in definitions or len(definitions) < 2:
        raise ValueError(f"{modules[0].parent if modules else tree}: definitions of the BLAS not found")
    names += [name for name in dict.fromkeys(definitions) if name != _IDEEP]
    condition = f"\n#ifndef {SEPARATE}\n#include <{HEADER}>\n#endif\n"
    changed = {
        config: _END.sub(condition, _MACRO.sub("", _text(config))),
        cmake: _replaced(cmake, _CONFIGURE, r"\g<0>\1BlasConfig\2BlasConfig\3"),
        top: _replaced(top, _PROJECT, rf"add_compile_definitions({SEPARATE})\n\g<0>"),
        **{path: _DEFINITION.sub(rf"# \1: in {HEADER}", _text(path)) for path in modules},
    }
    readers = {path: f"#include <{HEADER}>\n{text}" for path, text in _find_readers(tree, names)}
    defines = (f"#cmakedefine {name}\n" for name in names if "_HAS_" in name)
    own = {tree / _ATEN / "BlasConfig.h.in": "".join(["#pragma once\n\n", *macros, *defines])}
    for path, text in {**changed, **readers, **own}.items():
        path.write_text(text, errors="surrogateescape")
    return list(readers)


def _text(path: Path) -> str:
    return path.read_text(errors="surrogateescape")


def _matches(path: Path, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    matches = list(pattern.finditer(_text(path)))
    if not matches:
        raise ValueError(f"{path}: no line matches {pattern.pattern}")
    return matches


def _replaced(path: Path, pattern: re.Pattern[str], replacement: str) -> str:
    _matches(path, pattern)
    return pattern.sub(replacement, _text(path))


def _find_readers(tree: Path, names: Iterable[str]) -> Iterator[tuple[Path, str]]:
    """Yield PyTorch's own sources that have one of these names, with their text, without tests."""
    any_name = re.compile(rf"\b({'|'.join(names)})\b")
    for top in _FOLDERS:
        for folder, folders, files in os.walk(tree / top):
            folders[:] = sorted(name for name in folders if name != "test")
            for path in (Path(folder, name) for name in sorted(files) if name.endswith(_SUFFIXES)):
                text = "" if path.is_symlink() else _text(path)
                if _CALLS_IT.search(text):
                    raise ValueError(f"{path}: calls a function of ideep that needs {_IDEEP}")
                if any_name.search(text):
                    yield path, text


if __name__ == "__main__":
    try:
        print(f"::megabuild:: blas readers={len(separate(Path(sys.argv[1])))}")
    except (OSError, ValueError) as error:
        print(f"warning: configs with another BLAS share fewer objects: {error}")
