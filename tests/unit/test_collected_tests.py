"""All processes of pytest collect the same tests in the same order, or pytest-xdist refuses to run them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from importlib import import_module
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


class NamedSets(ast.NodeTransformer):
    """Writes a set in place of a name that a test file imports, if that is one."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules

    def visit_Name(self, node: ast.Name) -> ast.AST:
        module = self._modules.get(node.id)
        if module and isinstance(getattr(import_module(module), node.id, None), (set, frozenset)):
            return ast.Set(elts=[])
        return node


def modules_of_names(module: ast.Module) -> dict[str, str]:
    """Return the modules that names are imported from."""
    found: dict[str, str] = {}
    for statement in module.body:
        if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            for alias in statement.names:
                if not alias.asname:
                    found[alias.name] = statement.module
    return found


def parameters(module: ast.Module) -> Iterator[ast.AST]:
    """Yield the values of ``parametrize`` and of fixtures' ``params``, with those of the constants that they name."""
    named_sets = NamedSets(modules_of_names(module))
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
        names = [part.id for part in ast.walk(values) if isinstance(part, ast.Name)]
        yield named_sets.visit(values)
        for name in names:
            if name in constants:
                yield named_sets.visit(constants[name])


@pytest.mark.parametrize("folder", ["acceptance", "integration", "unit"])
def test_parameters_have_an_order_that_no_process_decides(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(TESTS / folder)
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
        ("[*NO_PARTS, 404]", 1),
        ("[x for x in NO_PARTS]", 1),
        ("sorted(NO_PARTS)", 0),
        ("[(1, {1, 2}), lambda: set()]", 0),
    ],
)
def test_values_without_an_order_are_found(text: str, count: int) -> None:
    imports = "from groundwork.network.client import NO_PARTS\n"
    module = ast.parse(
        f"{imports}VALUES = {text}\n@pytest.mark.parametrize('x', VALUES)\ndef test(x): pass\n"
    )
    values = list(parameters(module))[-1]
    assert is_set(values) + len(list(unordered(values))) == count
