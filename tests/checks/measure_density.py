"""Measures how densely Python code is written, and holds limits: `python tests/checks/measure_density.py [FOLDER...]`.

A stranger reads a statement at first sight if it does one thing. All figures count statements, not lines, so that no
formatter changes them; a compound statement counts with its header alone. `--places FIGURE` lists the places of a
figure, the worst first. Without folders, the product's folders are measured together, and a figure over its limit is
an error.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = (ROOT / "src", ROOT / "recipe")
#: A function with more branch points is busy.
MANY_BRANCHES = 10
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.comprehension,
    ast.match_case,
)


class Figure(Enum):
    """What is measured: the first two for all statements, the others as numbers of places."""

    TOKENS = "tokens"
    BRANCHES = "branches"
    PACKED = "packed"
    CONDITIONAL = "conditional"
    NESTED_CONDITIONAL = "nested-conditional"
    COMPREHENSION = "comprehension"
    NESTED_COMPREHENSION = "nested-comprehension"
    BUSY = "busy"
    COMPARED_TEXT = "compared-text"


@dataclass(frozen=True)
class Meaning:
    """What a figure says, for how many statements it is given, and its limit in the product."""

    text: str
    statements: int
    limit: float


MEANINGS = {
    Figure.TOKENS: Meaning("tokens", 1, 10.3),
    Figure.BRANCHES: Meaning("branch points", 100, 28.0),
    Figure.PACKED: Meaning("assignments of several values to several targets", 1000, 3.0),
    Figure.CONDITIONAL: Meaning("conditional expressions", 1000, 18.0),
    Figure.NESTED_CONDITIONAL: Meaning("conditional expressions in another one", 1000, 0.1),
    Figure.COMPREHENSION: Meaning("comprehensions", 1000, 32.0),
    Figure.NESTED_COMPREHENSION: Meaning("comprehensions in another one", 1000, 0.8),
    Figure.BUSY: Meaning(f"functions with more than {MANY_BRANCHES} branch points", 1000, 5.0),
    Figure.COMPARED_TEXT: Meaning("comparisons with a text", 1000, 15.0),
}


@dataclass(frozen=True)
class Place:
    """A place in the code; ``weight`` puts the worst first."""

    path: Path
    line: int
    weight: int
    text: str


@dataclass
class Density:
    """What was counted in some files."""

    statements: int = 0
    tokens: int = 0
    branches: int = 0
    places: dict[Figure, list[Place]] = field(default_factory=lambda: {figure: [] for figure in Figure})

    def rate(self, figure: Figure) -> float:
        """Return a figure for as many statements as its meaning says."""
        counted: int
        match figure:
            case Figure.TOKENS:
                counted = self.tokens
            case Figure.BRANCHES:
                counted = self.branches
            case _:
                counted = len(self.places[figure])
        return counted * MEANINGS[figure].statements / max(self.statements, 1)


def count_branches(node: ast.AST) -> int:
    """Return the branch points in and below a node; each further operand of `and` and `or` is one."""
    count = 0
    for child in ast.walk(node):
        if isinstance(child, _BRANCHES):
            count += 1
        elif isinstance(child, ast.BoolOp):
            count += len(child.values) - 1
    return count


def walk_with_parents(
    node: ast.AST, parents: tuple[ast.AST, ...] = ()
) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    """Give each node with the nodes that it is in."""
    yield node, parents
    for child in ast.iter_child_nodes(node):
        yield from walk_with_parents(child, (*parents, node))


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _end_of_header(node: ast.stmt) -> tuple[int, int]:
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    if not body:
        return node.end_lineno or node.lineno, node.end_col_offset or 0
    first = body[0].pattern if isinstance(node, ast.Match) else body[0]
    return first.lineno, first.col_offset


def _is_packed(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
    )


def _compares_text(node: ast.AST) -> bool:
    if not isinstance(node, ast.Compare):
        return False
    for operand in (node.left, *node.comparators):
        parts = operand.elts if isinstance(operand, (ast.Tuple, ast.Set, ast.List)) else [operand]
        if any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts):
            return True
    return False


def find_figures(node: ast.AST, parents: tuple[ast.AST, ...]) -> Iterator[Figure]:
    """Give the figures of which a node is a place."""
    if _is_packed(node):
        yield Figure.PACKED
    if isinstance(node, ast.IfExp):
        yield Figure.CONDITIONAL
        if any(isinstance(parent, ast.IfExp) for parent in parents):
            yield Figure.NESTED_CONDITIONAL
    if isinstance(node, _COMPREHENSIONS):
        yield Figure.COMPREHENSION
        if any(isinstance(parent, _COMPREHENSIONS) for parent in parents):
            yield Figure.NESTED_COMPREHENSION
    if isinstance(node, _FUNCTIONS) and count_branches(node) > MANY_BRANCHES:
        yield Figure.BUSY
    if _compares_text(node):
        yield Figure.COMPARED_TEXT


def measure_file(path: Path, density: Density) -> None:
    """Add what a file has to ``density``."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    tokens = [
        # the parser counts columns in bytes, the tokenizer in characters
        (token.start[0], len(token.line[: token.start[1]].encode()))
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _LAYOUT
    ]
    tree = ast.parse(text)
    for node, parents in walk_with_parents(tree):
        if isinstance(node, ast.stmt) and not _is_docstring(node):
            start = min((one.lineno, one.col_offset) for one in (node, *getattr(node, "decorator_list", ())))
            length = bisect_left(tokens, _end_of_header(node)) - bisect_left(tokens, start)
            density.statements += 1
            density.tokens += length
            density.places[Figure.TOKENS].append(
                Place(path, node.lineno, length, lines[node.lineno - 1].strip())
            )
        for figure in find_figures(node, parents):
            line = getattr(node, "lineno", 1)
            weight = count_branches(node)
            density.places[figure].append(Place(path, line, weight, lines[line - 1].strip()))
    density.branches += count_branches(tree)


def measure(folders: list[Path]) -> Density:
    """Measure the Python files below folders, each file once."""
    density = Density()
    seen: set[Path] = set()
    for folder in folders:
        for path in [folder] if folder.is_file() else sorted(folder.rglob("*.py")):
            if path.resolve() not in seen:
                seen.add(path.resolve())
                measure_file(path, density)
    return density


def main(words: list[str]) -> int:
    """Print what is asked for; return 1 if the product is over a limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--places", choices=[figure.value for figure in Figure])
    arguments = parser.parse_args(words)
    density = measure(arguments.folders or list(PRODUCT))
    if arguments.places:
        chosen = density.places[Figure(arguments.places)]
        for place in sorted(chosen, key=lambda place: -place.weight):
            print(f"{place.path}:{place.line}: {place.weight}: {place.text}")
        return 0
    exit_code = 0
    print(f"{density.statements:,} statements, {density.tokens:,} tokens")
    for figure, meaning in MEANINGS.items():
        rate = density.rate(figure)
        limit = "" if arguments.folders else f" (limit {meaning.limit:g})"
        print(f"{rate:7.1f}{limit}  {meaning.text} per {meaning.statements:,}: {figure.value}")
        if not arguments.folders and rate > meaning.limit:
            exit_code = 1
            print(f"error: too dense; places: python tests/checks/measure_density.py --places {figure.value}")
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
