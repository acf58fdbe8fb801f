"""Every command of the pages is run by a test or listed with a reason; the tests import nothing of the product."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import REPOSITORY, all_commands, documented
from ruamel.yaml import YAML

MISSING = "python3 scripts/megabuild fly"
HERE = Path(__file__).resolve().parent
_PRODUCT = {path.name for path in (REPOSITORY / "src").iterdir() if path.is_dir()} | {
    "cmake_python_swap", "cuda_code",
}  # fmt: skip
_TEST_HELPERS = {
    path.stem for folder in ("unit", "integration") for path in (REPOSITORY / "tests" / folder).glob("*.py")
}


def _trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(HERE.glob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def run_by_tests() -> set[str]:
    """Return the commands that tests take from pages: the first words of all calls of ``documented``."""
    found: set[str] = set()
    for _, tree in _trees():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "documented"
            ):
                command = node.args[0]
                if isinstance(command, ast.Constant):
                    found.add(str(command.value))
    return found


def left_out() -> dict[str, str]:
    """Return the commands that no test runs here, with their reasons."""
    groups = YAML(typ="safe").load(HERE / "not_run_here.yaml")
    found: dict[str, str] = {}
    for group in groups:
        for command in group["commands"]:
            found[command] = group["reason"]
    return found


def test_every_command_of_the_pages_is_run_or_listed_with_a_reason() -> None:
    known = run_by_tests() | set(left_out())
    missing = {command: pages for command, pages in all_commands().items() if command not in known}
    assert missing == {}, "run it in a test of tests/acceptance, or list it in not_run_here.yaml"


def test_the_list_names_commands_of_the_pages_only_once() -> None:
    shown = set(all_commands())
    assert set(left_out()) - shown == set(), "no page shows these any more"
    assert set(left_out()) & run_by_tests() == set(), "tests run these"
    assert all(len(reason) > 20 for reason in left_out().values())


def test_acceptance_tests_import_nothing_of_the_product() -> None:
    for path, tree in _trees():
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                package = name.partition(".")[0]
                assert package not in _PRODUCT, f"{path.name} imports {name}"
                assert package not in _TEST_HELPERS, f"{path.name} imports {name}, which knows the product"


def test_every_promise_names_tests_that_exist() -> None:
    table = (HERE / "README.md").read_text(encoding="utf-8")
    rows = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) > 20
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 3, row
        for reference in cells[2].split(", "):
            path, _, name = reference.strip("`").partition("::")
            file = REPOSITORY / "tests" / path
            assert file.is_file(), f"{reference}: no such file"
            if name:
                assert f"def {name}(" in file.read_text(encoding="utf-8"), f"{reference}: no such test"


def test_a_command_that_no_page_shows_is_refused() -> None:
    with pytest.raises(AssertionError, match="no page shows"):
        documented(f"{MISSING}")
