"""Packages' own tests: folders that only their authors run.

A folder called ``test`` or ``tests`` counts if it holds tests in Python, or programs that are called so (PyTorch's):
others hold data. It stays when anything outside of it leads there: an import of any form, a string in a module beside
it, an entry point, or its dotted name in a text, such as a docstring that tells readers to import it. Modules and stubs
in it that are no tests (gensim.test.utils, django-stubs' django.test) may be meant for others: they stay, with the data
beside them, and only the tests go.
"""

from __future__ import annotations

import ast
import keyword
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from gpu_tools.sizes.installed import source_of
from gpu_tools.slim.listing import ELF, Contents

_NAMES = frozenset({"test", "tests"})
_SITES = re.compile(r"(?:.*/)?(?:(?:site|dist)-packages|python3\.\d+t?)/")
_WORD = re.compile(rb"\btests?\b")
#: An import statement with such a word in it, on its line, on continued ones, or between parentheses.
_IMPORT = re.compile(
    rb"\b(?:import|from)\b(?:[^\n]*\\\r?\n)*[^\n]*\btests?\b|\bimport\s*\((?:[^)#]|#[^\n]*\n)*\btests?\b"
)
_STRING = re.compile(rb"""["']tests?["'/]""")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*?\.tests?\b")
_TELLING = (".py", ".pyi", ".pth", ".dist-info/METADATA", ".dist-info/entry_points.txt")
_TEST_MODULE = re.compile(r"test_.*|.*_tests?|conftest")
_TEST_CODE = re.compile(rb"^\s*(?:async\s+)?def test|\bTestCase\b", re.MULTILINE)
#: What such folders hold is copied or served, not imported.
_COPIED = re.compile(r".*(?:template|skeleton|scaffold).*|static")


def find_own_tests(contents: Contents) -> Iterator[str]:
    """Return the files of tests that go."""
    folders = _folders(contents)
    used = _used(contents, folders)
    for folder, files in folders.items():
        if folder in used or not any(_holds_tests(path, contents) for path in files):
            continue
        modules = {path: contents.every[path].read() for path in _modules(folder, files)}
        others = {path: content for path, content in modules.items() if not _is_test(path)}
        if not any(path.endswith(".pyi") or _is_public(content) for path, content in others.items()):
            yield from files
        elif not any(map(_imports_a_test, others.values())):
            tests = modules.keys() - others.keys()
            yield from (path for path in files if path in tests or source_of(path) in tests)


def _folders(contents: Contents) -> Mapping[str, list[str]]:
    """Return the files of each folder of tests, by its path as a module; byte code among them."""
    folders: dict[str, list[str]] = {}
    for path in contents.owners:
        parts = _place(path, contents).parts[:-1]
        at = next((number for number, part in enumerate(parts) if part in _NAMES), 0)
        if at and all(part.isidentifier() and not _COPIED.fullmatch(part) for part in parts[:at]):
            folders.setdefault("/".join(parts[: at + 1]), []).append(path)
    return folders


def _holds_tests(path: str, contents: Contents) -> bool:
    """Say whether a file is a test in Python, or a program that is called one."""
    entry, suffix = contents.every[path], PurePosixPath(path).suffix
    if entry.is_link or suffix not in ("", ".py"):
        return False
    if suffix:
        return _is_test(path) or _TEST_CODE.search(entry.read()) is not None
    return _is_test(path) and entry.begins_with(ELF)


def _used(contents: Contents, folders: Mapping[str, list[str]]) -> set[str]:
    used: set[str] = set()
    beside = {os.path.dirname(folder) for folder in folders}
    for path in contents.owners:
        place = _place(path, contents)
        if not path.endswith(_TELLING) or _NAMES & set(place.parts[:-1]):
            continue
        content = contents.every[path].read()
        if not _WORD.search(content):
            continue
        text = content.decode(errors="replace")
        used |= {name.replace(".", "/") for name in _DOTTED.findall(text)}
        if _IMPORT.search(content) or (str(place.parent) in beside and _STRING.search(content)):
            used |= set(_named(text, place))
    return used


def _named(text: str, place: PurePosixPath) -> Iterator[str]:
    """Return what a module imports, as paths of modules, and the folders beside it that its strings name."""
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _upwards(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            parts = list(place.parts[: -node.level]) if node.level else []
            parts += (node.module or "").split(".") if node.module else []
            yield from _upwards(parts)
            yield from ("/".join([*parts, alias.name]) for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.partition("/")[0]
            if name in _NAMES:
                yield f"{place.parent}/{name}"


def _upwards(parts: Sequence[str]) -> Iterator[str]:
    """Return a module and the packages it lies in."""
    yield from ("/".join(parts[: end + 1]) for end in range(len(parts)))


def _modules(folder: str, files: Sequence[str]) -> Iterator[str]:
    """Return the modules in a folder that can be imported: beside an ``__init__``, with names that Python can write."""
    there = set(files)
    for path in files:
        if not path.endswith((".py", ".pyi")):
            continue
        inside = PurePosixPath(path.partition(f"{folder}/")[2])
        packed = (
            len(inside.parts) == 1
            or {f"{os.path.dirname(path)}/__init__{end}" for end in (".py", ".pyi")} & there
        )
        if packed and not any(
            name != "__init__"
            and (name.startswith("_") or not name.isidentifier() or keyword.iskeyword(name))
            for name in inside.with_suffix("").parts
        ):
            yield path


def _is_test(path: str) -> bool:
    return _TEST_MODULE.fullmatch(PurePosixPath(path).stem) is not None


def _is_public(content: bytes) -> bool:
    """Say whether a module has a function or class that may be meant for others."""
    return any(
        isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        and not node.name.startswith(("_", "test", "Test", "setup", "teardown", "load_tests"))
        for node in getattr(parse(content), "body", ())
    )


def _imports_a_test(content: bytes) -> bool:
    for node in ast.walk(parse(content)):
        names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if any(_TEST_MODULE.fullmatch(name.rpartition(".")[2]) for name in names):
            return True
    return False


def parse(source: str | bytes) -> ast.AST:
    """Parse a module; what Python cannot read is empty."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other people's source
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a template, or a test of just that
        return ast.Module(body=[], type_ignores=[])


def is_in_tests(path: str) -> bool:
    """Say whether a file lies below a folder of tests, by its name."""
    return not _NAMES.isdisjoint(path.split("/")[:-1])


def _place(path: str, contents: Contents) -> PurePosixPath:
    """Return a file's path below the folder that Python imports from; ``.`` for what lies elsewhere."""
    site = _SITES.match(path)
    if site:
        return PurePosixPath(path[site.end() :])
    return PurePosixPath(path if contents.kind == "wheel" else "")
