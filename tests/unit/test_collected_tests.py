"""All processes of pytest collect the same tests in the same order, or pytest-xdist refuses to run them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
#: Calls that list a folder, in an order of the file system's.
LISTING = frozenset({"glob", "iterdir", "listdir", "rglob", "scandir"})
#: Calls whose result another process need not get.
OWN = frozenset({"check_output", "find", "getpid", "mkdtemp", "now", "run", "time", "uuid4"})


def is_set(node: ast.AST) -> bool:
    match node:
        case ast.Set() | ast.SetComp() | ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case _:
            return False


def unordered(node: ast.AST, *, is_sorted: bool = False) -> Iterator[ast.AST]:
    """Yield the parts of an expression that processes may see in another order, or with another value."""
    sorts = False
    match node:
        case ast.Call(func=ast.Name(id="sorted")):
            sorts = True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            if name in OWN or (name in LISTING and not is_sorted):
                yield node
        case ast.Starred(value=values) | ast.comprehension(iter=values) if is_set(values):
            yield node
        case ast.Lambda():
            return
    for child in ast.iter_child_nodes(node):
        yield from unordered(child, is_sorted=sorts)


def parameters(module: ast.Module) -> Iterator[ast.AST]:
    """Yield the values of ``parametrize`` and of fixtures' ``params``, with those of the constants that they name."""
    constants: dict[str, ast.AST] = {}
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                constants[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.AST() as value):
                constants[name] = value
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Attribute(attr="parametrize"), args=[_, values, *_]):
                pass
            case ast.keyword(arg="params", value=values):
                pass
            case _:
                continue
        yield values
        for part in ast.walk(values):
            if isinstance(part, ast.Name) and part.id in constants:
                yield constants[part.id]


@pytest.mark.parametrize("folder", ["acceptance", "integration", "unit"])
def test_parameters_have_an_order_that_no_process_decides(folder: str) -> None:
    found = []
    for file in sorted((TESTS / folder).glob("test_*.py")):
        for values in parameters(ast.parse(file.read_text(encoding="utf-8"))):
            if is_set(values) or list(unordered(values)):
                found.append(f"{file.name}: {ast.unparse(values)}")
    assert found == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("{1, 2}", 1),
        ("[*{1, 2}]", 1),
        ("[x for x in set('ab')]", 1),
        ("[*folder.glob('*')]", 1),
        ("[path for path in folder.iterdir()]", 1),
        ("sorted(folder.glob('*'))", 0),
        ("sorted({1, 2})", 0),
        ("sorted(set(run('python')))", 1),
        ("[os.getpid()]", 1),
        ("[(1, {1, 2}), lambda: set()]", 0),
    ],
)
def test_values_without_an_order_are_found(text: str, count: int) -> None:
    module = ast.parse(f"VALUES = {text}\n@pytest.mark.parametrize('x', VALUES)\ndef test(x): pass\n")
    values = list(parameters(module))[-1]
    assert is_set(values) + len(list(unordered(values))) == count
