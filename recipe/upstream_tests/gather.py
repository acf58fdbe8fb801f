"""Packs the selected tests, with the modules and files that they need from PyTorch's folder of tests."""

from __future__ import annotations

import ast
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from upstream_tests import selection

HERE = Path(__file__).resolve().parent
TESTS = "test"  # upstream's folder of tests, and the package's
EXPECTED = "expect"  # the folder in it with expected texts
_FILE_NAME = re.compile(r"\w[\w-]*\.\w+")


def gather(tree: Path, folder: Path) -> None:
    """Copy the selected tests of a source ``tree``, the modules and files they need, and this package.

    A tree may have a selection of its own: the model of rehearsals has.
    """
    tests = tree / TESTS
    chosen = tests / selection.NAME
    if not chosen.is_file():
        chosen = selection.PATH
    names = selection.read_selection(chosen).files()
    missing = [name for name in names if not (tests / name).is_file()]
    if missing:
        sys.exit(f"error: {tests}: no {', '.join(missing)}\nhint: change {chosen}")
    packed = folder / TESTS
    packed.mkdir(parents=True)
    wanted = [tests / name for name in names]
    for name in names:
        wanted += _needed(tests, tests / name)
    if (tests / EXPECTED).is_dir():
        wanted.append(tests / EXPECTED)
    for path in dict.fromkeys(wanted):
        _copy(path, packed / path.relative_to(tests))
    program = folder / HERE.name
    program.mkdir()
    for path in sorted(HERE.glob("*.py")):
        shutil.copy2(path, program)
    shutil.copy2(chosen, program / selection.NAME)


def _copy(path: Path, target: Path) -> None:
    if path.is_dir():
        shutil.copytree(path, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def _needed(tests: Path, file: Path) -> Iterator[Path]:
    """Yield the modules and whole packages that a test file imports from the folder of tests, and its data there."""
    parsed = ast.parse(file.read_text(encoding="utf-8"))
    for module in _imported(parsed):
        top = module.partition(".")[0]
        if top in sys.stdlib_module_names:  # `import typing` does not import test/typing
            continue
        path = tests.joinpath(*module.split(".")).with_suffix(".py")
        if path.is_file():
            yield path if path.parent == tests else tests / top
        elif (
            tests / top / "__init__.py"
        ).is_file():  # test/functorch has none: the installed functorch is meant
            yield tests / top
    for name in _named(parsed):
        if (tests / name).is_file():
            yield tests / name


def _imported(parsed: ast.AST) -> Iterator[str]:
    """Yield the names of the modules that a source imports, apart from relative imports."""
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _named(parsed: ast.AST) -> Iterator[str]:
    """Yield the texts in a source that look like names of files."""
    for node in ast.walk(parsed):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and _FILE_NAME.fullmatch(node.value)
        ):
            yield node.value
