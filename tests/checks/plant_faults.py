"""Plants faults in a copy of this project and shows which tests find them: `plant_faults.py SEED N`.

Each fault changes one expression of one module in scripts/: a comparison, a lost call, swapped arguments, an early
return, a number off by one, a wrong constant, a lost `not`, a lost `raise`. Packages and kinds take turns. First run
the tests that import the module, then those that import its importers, then all other unit tests, then those of
tests/integration that CI runs (`--units`: not).
One JSON line per fault goes to standard output: `found` is `nearest`, `unit`, `integration` or, for a survivor, empty.
The same SEED plants the same faults in the same commit. Run in the environment of scripts/test.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
#: Text with blanks is wording, which tests should not fix.
_NAME = re.compile(r"[\w./+-]+")
#: Seconds; a test that a fault keeps from ending has found it.
_LONGEST = 900.0


class Fault(NamedTuple):
    """A change of some bytes of a module."""

    path: Path  #: below the project
    line: int
    kind: str
    begin: int  #: bytes of the module that are replaced
    end: int
    new: str


def find_faults(path: Path, content: bytes) -> Iterator[Fault]:
    """Yield the faults that can be planted in a module's content."""
    starts = [0, *(match.end() for match in re.finditer(b"\n", content))]
    tree = ast.parse(content)
    idle = {id(node) for node in ast.walk(tree) for node in _idle(node)}
    for node in ast.walk(tree):
        if id(node) in idle or not isinstance(node, (ast.expr, ast.stmt)):
            continue
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        for kind, new in _changes(node):
            yield Fault(path, node.lineno, kind, begin, end, new)
        if isinstance(node, ast.FunctionDef) and (first := _first_statement(node)) is not None:
            begin = starts[first.lineno - 1] + first.col_offset
            yield Fault(path, first.lineno, "early return", begin, begin, "return\n" + " " * first.col_offset)


def _idle(node: ast.AST) -> Iterator[ast.AST]:
    """Yield nodes whose change is no fault: docstrings, messages, types, and arguments of decorators."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield from (node, node.value)
    for field in ("annotation", "returns"):
        if isinstance(part := getattr(node, field, None), ast.AST):
            yield from ast.walk(part)
    if isinstance(node, ast.JoinedStr):
        yield from ast.walk(node)
    for decorator in getattr(node, "decorator_list", ()):
        yield from ast.walk(decorator)


def _changes(node: ast.AST) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=comparators):
            changed = ast.Compare(left, [_COMPARED[type(op)]()], comparators)
            yield "comparison", f"({ast.unparse(changed)})"
        case ast.Expr(value=ast.Call()):
            yield "lost call", "pass"
        case ast.Call(func=func, args=[first, second, *rest], keywords=keywords) if not any(
            isinstance(argument, ast.Starred) for argument in (first, second)
        ):
            yield "swapped arguments", ast.unparse(ast.Call(func, [second, first, *rest], keywords))
        case ast.Constant(value=bool(value)):
            yield "wrong constant", repr(not value)
        case ast.Constant(value=int(value)):
            yield "off by one", repr(value + 1)
        case ast.Constant(value=str(value)) if _NAME.fullmatch(value):
            yield "wrong constant", repr(value + "x")
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "missing not", f"({ast.unparse(operand)})"
        case ast.Raise():
            yield "lost raise", "pass"


def _first_statement(function: ast.FunctionDef) -> ast.stmt | None:
    """Return the statement before which a function could return; None for one that is a single statement."""
    body = function.body[ast.get_docstring(function) is not None :]
    own_line = len(body) > 1 and not any(
        isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(function)
    )
    return body[0] if own_line else None


def choose_faults(seed: int, count: int, package: str) -> Iterator[Fault]:
    """Yield `count` faults at random; packages take turns, and in each of them the kinds of faults."""
    by_package: dict[str, list[Fault]] = defaultdict(list)
    for path in sorted((ROOT / "src").rglob(f"{package or '*'}/**/*.py")):
        parts = path.relative_to(ROOT / "src").parts
        own = "/".join(parts[: 2 if parts[0] in ("megabuild", "gpu_tools") and len(parts) > 2 else 1])
        by_package[own] += find_faults(path.relative_to(ROOT), path.read_bytes())
    chance = random.Random(seed)
    drawn = {name: _draw(faults, chance) for name, faults in sorted(by_package.items()) if faults}
    yield from (next(drawn[name]) for name in itertools.islice(itertools.cycle(drawn), count))


def _draw(faults: Sequence[Fault], chance: random.Random) -> Iterator[Fault]:
    by_kind: dict[str, list[Fault]] = defaultdict(list)
    for fault in chance.sample(faults, len(faults)):
        by_kind[fault.kind].append(fault)
    for each_kind in itertools.zip_longest(*chance.sample(sorted(by_kind.values()), len(by_kind))):
        yield from filter(None, each_kind)


def sort_tests(fault: Fault) -> Iterator[tuple[str, list[str]]]:
    """Yield the unit test files that import a fault's module, those that import an importer of it, and the others."""
    files = set((ROOT / "tests" / "unit").glob("test_*.py"))
    near = _importers({ROOT / fault.path}, files)
    next_to = _importers(_importers({ROOT / fault.path}, (ROOT / "src").rglob("*.py")), files - near)
    for stage, paths in (("nearest", near), ("unit", next_to), ("unit", files - near - next_to)):
        yield stage, sorted(str(path.relative_to(ROOT)) for path in paths)


def _importers(modules: Iterable[Path], files: Iterable[Path]) -> set[Path]:
    """Return the files that import one of these modules of scripts/."""
    names = ["(?!)"]  # matches nothing
    for path in modules:
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        parent, _, leaf = map(re.escape, module.rpartition("."))
        names += [rf"\b{re.escape(module)}\b", rf"from {parent} import (?:\([^)]*|.*)\b{leaf}\b"]
    named = re.compile("|".join(names))
    return {path for path in files if named.search(path.read_text(encoding="utf-8"))}


def is_found(copy: Path, tests: Sequence[str], jobs: int) -> str:
    """Return the first test that fails in a copy of the project, or an empty string."""
    command = [sys.executable, "-m", "pytest", "-xq", "--tb=no", "-p", "no:cacheprovider", "-m", "not long"]
    command += ["-n", str(jobs) if jobs > 1 else "0", *tests]
    try:
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=_LONGEST)
    except subprocess.TimeoutExpired:
        return "does not end"
    if done.returncode == 0:
        return ""
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return failed[0] if failed else f"exit code {done.returncode}"


def try_fault(copy: Path, fault: Fault, jobs: int, *, units: bool) -> tuple[str, str]:
    """Plant a fault in a copy of the project; return the kind of tests that find it, and the test."""
    path, content = copy / fault.path, (ROOT / fault.path).read_bytes()
    path.write_bytes(content[: fault.begin] + fault.new.encode() + content[fault.end :])
    try:
        stages = [*sort_tests(fault)]
        for stage, tests in stages if units else [*stages, ("integration", ["tests/integration"])]:
            if tests and (test := is_found(copy, tests, jobs)):
                return stage, test
        return "", ""
    finally:
        path.write_bytes(content)


def main() -> None:
    """Plant the faults, and print the share that tests find, by package."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--package", default="", help="only this folder of scripts/")
    parser.add_argument("--units", action="store_true", help="only unit tests")
    parser.add_argument("--jobs", type=int, default=2, help="parallel tests")
    options = parser.parse_args()
    total, caught = Counter[str](), Counter[tuple[str, bool]]()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "project"
        shutil.copytree(
            ROOT, copy, ignore=shutil.ignore_patterns(".venv", "output", "__pycache__"), symlinks=True
        )
        if test := is_found(copy, ["tests/unit"], options.jobs):
            sys.exit(f"{test} fails without a fault")
        for fault in choose_faults(options.seed, options.count, options.package):
            stage, test = try_fault(copy, fault, options.jobs, units=options.units)
            old = (ROOT / fault.path).read_bytes()[fault.begin : fault.end].decode()
            package = "/".join(fault.path.parts[1:-1])
            total[package] += 1
            for narrow in (True, False):
                caught[package, narrow] += stage in ("nearest", "unit") if narrow else bool(stage)
            print(json.dumps({
                "place": f"{fault.path}:{fault.line}", "kind": fault.kind, "old": old[:200], "new": fault.new[:200],
                "found": stage, "test": test,
            }), flush=True)  # fmt: skip
    for package, count in sorted(total.items()):
        print(f"{package:40} {caught[package, True]:3} by unit tests, {caught[package, False]:3} in all, of {count:3}",
              file=sys.stderr)  # fmt: skip


if __name__ == "__main__":
    main()
