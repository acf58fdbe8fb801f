"""Counts how large a checkout of this project is: `python tests/checks/count_size.py [CHECKOUT...]`, a column for each.

Read as text and by Python's parser, never imported, so that any commit can be counted:

- lines: everything in Python files; code: without blank lines, comments and docstrings
- functions: definitions, methods among them; records: dataclasses, named tuples, typed dictionaries, msgspec's structs
- options: those of click's commands, each decorator once; JSON formats: different names given as ``format=``
- exit codes: different numbers of the error classes
- import packages: what pyproject.toml's locks hold for running
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_RECORDS = {"NamedTuple", "TypedDict", "Struct"}
_OPTIONS = {"option", "click.option", "json_option", "output_option"}


@dataclass
class Size:
    """What was counted in some Python files."""

    files: int = 0
    lines: int = 0
    code: int = 0
    functions: int = 0
    records: int = 0
    options: int = 0


def find_modules(folder: Path) -> Iterator[Path]:
    """Give the Python files below a folder, links to folders left out."""
    for path in sorted(folder.rglob("*.py")):
        parents = [path, *path.parents]
        if not any(one.is_symlink() for one in parents[: parents.index(folder)]):
            yield path


def count_code(text: str) -> int:
    """Return the number of lines with code: none that is blank, a comment, or part of a docstring."""
    lines: set[int] = set()
    skipped = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            first = node.body[0]
            lines.difference_update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def is_record(node: ast.ClassDef) -> bool:
    """Return whether a class is a record."""
    named = [ast.unparse(one) for one in (*node.bases, *node.decorator_list)]
    return any(name.partition("(")[0].rpartition(".")[2] in {"dataclass", *_RECORDS} for name in named)


def measure(folder: Path) -> Size:
    """Count the Python files below a folder."""
    size = Size()
    for path in find_modules(folder):
        text = path.read_text(encoding="utf-8")
        size.files += 1
        size.lines += len(text.splitlines())
        size.code += count_code(text)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                size.functions += 1
            if isinstance(node, ast.ClassDef):
                size.records += is_record(node)
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                size.options += sum(
                    ast.unparse(one).partition("(")[0] in _OPTIONS for one in node.decorator_list
                )
    return size


def find_formats(folder: Path) -> set[str]:
    """Return the names of JSON formats: what results are given as ``format``, also through a constant."""
    found = set()
    for path in find_modules(folder):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants = {
            node.targets[0].id: node.value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                for keyword in node.keywords:
                    value = keyword.value
                    text = value.value if isinstance(value, ast.Constant) else None
                    text = constants.get(value.id) if isinstance(value, ast.Name) else text
                    name = ast.unparse(node.func).rpartition(".")[2]
                    if keyword.arg == "format" and isinstance(text, str) and name in ("Result", "RunState"):
                        found.add(text)
    return found


def count_exit_codes(folder: Path) -> int:
    """Return the number of different exit codes."""
    text = (folder / "groundwork" / "errors.py").read_text(encoding="utf-8")
    numbers = {int(found) for found in re.findall(r"exit_code(?:: [\w\[\]]+)? = (\d+)", text)}
    return len(numbers)


def count_locked(checkout: Path) -> int:
    """Return the number of distributions in the lock for running."""
    return len(
        re.findall(r"^[\w.-]+==", (checkout / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    )


def count(checkout: Path) -> dict[str, int]:
    """Return everything that is counted in a checkout."""
    scripts, tests = measure(checkout / "src"), measure(checkout / "tests")
    pages = (checkout / "docs").glob("*.md")
    return {
        "lines under src/": scripts.lines,
        "code lines": scripts.code,
        "functions": scripts.functions,
        "records": scripts.records,
        "files": scripts.files,
        "options": scripts.options,
        "JSON formats": len(find_formats(checkout / "src")),
        "exit codes": count_exit_codes(checkout / "src"),
        "lines of tests": tests.lines,
        "import packages": count_locked(checkout),
        "lines of docs/*.md": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in pages),
    }


def main(checkouts: list[Path]) -> None:
    """Print a table."""
    columns = [count(checkout) for checkout in checkouts]
    width = max(map(len, columns[0]))
    for name in columns[0]:
        print(f"{name:{width}}", *(f"{column[name]:8,}" for column in columns))


if __name__ == "__main__":
    main([Path(word).resolve() for word in sys.argv[1:]] or [Path(__file__).resolve().parents[2]])
