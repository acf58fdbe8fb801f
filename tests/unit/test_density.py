"""How densely code is written: each figure counts what it names, and the product keeps its limits."""

from __future__ import annotations

from pathlib import Path

import pytest
from measure_density import Figure, main, measure

STATEMENTS = {
    Figure.PACKED: ("first, second = 1, 2", "first, second = pair"),
    Figure.CONDITIONAL: ("value = 1 if known else 2", "value = known or 2"),
    Figure.NESTED_CONDITIONAL: ("value = 1 if known else 2 if other else 3", "value = 1 if known else 2"),
    Figure.COMPREHENSION: ("values = [row for row in rows]", "values = list(rows)"),
    Figure.NESTED_COMPREHENSION: (
        "values = [[cell for cell in row] for row in rows]",
        "values = [row for row in rows]",
    ),
    Figure.COMPARED_TEXT: ("is_wheel = kind == 'wheel'", "is_wheel = kind == WHEEL"),
    Figure.BUSY: (
        "def judge(row):\n" + "    if row:\n        pass\n" * 11,
        "def judge(row):\n" + "    if row:\n        pass\n" * 10,
    ),
}


@pytest.mark.parametrize("figure", STATEMENTS, ids=lambda figure: figure.value)
def test_a_figure_counts_its_places_and_no_others(figure: Figure, tmp_path: Path) -> None:
    counted, left_out = STATEMENTS[figure]
    (tmp_path / "counted.py").write_text(counted)
    assert len(measure([tmp_path]).places[figure]) == 1
    (tmp_path / "counted.py").write_text(left_out)
    assert measure([tmp_path]).places[figure] == []


def test_tokens_are_those_of_statements_without_comments_and_docstrings(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""A module."""\n# a comment\nif first and second:  # why\n    third = 4\n')
    density = measure([tmp_path])
    assert (density.statements, density.tokens, density.branches) == (2, 8, 2)


def test_a_file_that_has_two_names_is_counted_once(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("value = 1\n")
    (tmp_path / "link.py").symlink_to("module.py")
    assert measure([tmp_path]).statements == 1


def test_places_are_listed_the_longest_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = tmp_path / "module.py"
    module.write_text("value = 1\nlonger = value + 2\n")
    assert main([str(module), "--places", "tokens"]) == 0
    assert capsys.readouterr().out == f"{module}:2: 5: longer = value + 2\n{module}:1: 3: value = 1\n"
