"""Move the BLAS out of what every source of PyTorch sees, so that configs that differ in it share their objects.

PyTorch tells its sources the BLAS by macros of ``ATen/Config.h``, which a third of them include, and by definitions on
every command line. About thirty files read one. This script moves all of them to ``ATen/BlasConfig.h`` and has those
files include it. Another source that reads ``AT_MKL_ENABLED()`` then does not compile, because calling an undefined
macro is an error. For users of the package, ``Config.h`` includes ``BlasConfig.h``: they see the same macros as before.

The script finds lines by their text, because one patch would not fit every release. In a release with other lines it
changes nothing: the build goes on, and shares less. Sources of which it could change only some are an error: they would
compile to something else. Standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from whole_walk import walk

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
_IDEEP = "IDEEP_USE_MKL"
_CALLS_IT = re.compile(r"\bbernoulli_generate\b|\bideep::dropout")
_CONFIGURE = re.compile(r"^(configure_file\()Config(\.h\.in .*/)Config(\.h.*\n)", re.MULTILINE)
_PROJECT = re.compile(r"^project\(Torch\b", re.MULTILINE)
_FOLDERS = ("aten/src", "c10", "caffe2", "functorch", "torch")
#: Ends the names of new files until all are written.
_NEW = ".separate-blas"
_SUFFIXES = (".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".mm")


def separate(tree: Path) -> list[Path]:
    """Change PyTorch's sources in a folder, and return the files that read a macro of the BLAS.

    Raises ValueError: The sources differ from those that this script knows; no file is changed.
    Raises OSError: A file cannot be read or written, or a former call changed some files only.
    """
    config = tree / _ATEN / "Config.h.in"
    cmake = tree / _ATEN / "CMakeLists.txt"
    top = tree / "CMakeLists.txt"
    if HEADER in _text(config):
        raise OSError(f"{tree}: sources that were changed in part; unpack them again")
    macros = _matches(config, _MACRO)
    definitions = _find_definitions(tree)
    names = [match[1] for match in macros]
    names += [name for name in definitions if name != _IDEEP]
    condition = f"\n#ifndef {SEPARATE}\n#include <{HEADER}>\n#endif\n"
    changed = {
        config: _END.sub(condition, _MACRO.sub("", _text(config))),
        cmake: _replaced(cmake, _CONFIGURE, r"\g<0>\1BlasConfig\2BlasConfig\3"),
        top: _replaced(top, _PROJECT, rf"add_compile_definitions({SEPARATE})\n\g<0>"),
    }
    for path in _modules(tree):
        changed[path] = _DEFINITION.sub(rf"# \1: in {HEADER}", _text(path))
    readers = _find_readers(tree, names)
    for path in readers:
        changed[path] = f"#include <{HEADER}>\n{_text(path)}"
    # the last one: the build's script takes it for the sign that all are changed
    changed[tree / _ATEN / "BlasConfig.h.in"] = _blas_config(macros, names)
    _replace_all(changed)
    return readers


def _replace_all(texts: Mapping[Path, str]) -> None:
    """Replace files: on a full disk none of them, and after a kill those up to some file.

    The text of the first one shows that it is replaced.
    """
    copies = {path: path.with_name(f"{path.name}{_NEW}") for path in texts}
    try:
        for path, text in texts.items():
            copies[path].write_text(text, errors="surrogateescape")
            if path.exists():
                shutil.copymode(path, copies[path])
    except OSError:
        for copy in copies.values():
            copy.unlink(missing_ok=True)
        raise
    for path, copy in copies.items():
        os.replace(copy, path)


def _modules(tree: Path) -> list[Path]:
    return sorted((tree / "cmake/Modules").glob("Find*.cmake"))


def _find_definitions(tree: Path) -> list[str]:
    """Return the names that CMake's modules define on command lines, each once."""
    names: dict[str, None] = {}
    for path in _modules(tree):
        names.update(dict.fromkeys(_DEFINITION.findall(_text(path))))
    if _IDEEP not in names or len(names) < 2:
        raise ValueError(f"{tree / 'cmake/Modules'}: definitions of the BLAS not found")
    return list(names)


def _blas_config(macros: Iterable[re.Match[str]], names: Iterable[str]) -> str:
    lines = ["#pragma once\n\n", *(match[0] for match in macros)]
    lines += [f"#cmakedefine {name}\n" for name in names if "_HAS_" in name]
    return "".join(lines)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="surrogateescape")
    except FileNotFoundError as error:
        raise ValueError(f"{path}: no such file") from error


def _matches(path: Path, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    matches = list(pattern.finditer(_text(path)))
    if not matches:
        raise ValueError(f"{path}: no line matches {pattern.pattern}")
    return matches


def _replaced(path: Path, pattern: re.Pattern[str], replacement: str) -> str:
    _matches(path, pattern)
    return pattern.sub(replacement, _text(path))


def _find_readers(tree: Path, names: Iterable[str]) -> list[Path]:
    """Return PyTorch's own sources that have one of these names, without tests."""
    any_name = re.compile(rf"\b({'|'.join(names)})\b")
    readers = []
    for path in _sources(tree):
        text = _text(path)
        if _CALLS_IT.search(text):
            raise ValueError(f"{path}: calls a function of ideep that needs {_IDEEP}")
        if any_name.search(text):
            readers.append(path)
    return readers


def _sources(tree: Path) -> Iterator[Path]:
    for top in _FOLDERS:
        for folder, folders, files in walk(tree / top):
            folders[:] = sorted(set(folders) - {"test"})
            for name in sorted(files):
                path = Path(folder, name)
                if name.endswith(_SUFFIXES) and not path.is_symlink():
                    yield path


def main(arguments: Sequence[str]) -> int:
    """Run the command line: ``TREE``; return 1 if the sources cannot be read or changed."""
    (tree,) = arguments
    try:
        print(f"::megabuild:: blas readers={len(separate(Path(tree)))}")
    except ValueError as error:
        print(f"warning: configs with another BLAS share fewer objects: {error}")
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
