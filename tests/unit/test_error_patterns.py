"""Each row of the table of error messages finds its own example."""

from __future__ import annotations

import pytest

from groundwork.error_patterns import CERTAIN, SUMMARIES, WEAK, ErrorPattern, Strength
from groundwork.first_error import first_error

ROWS = [*CERTAIN, *WEAK, *SUMMARIES]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.message[:40])
def test_a_pattern_finds_its_example(row: ErrorPattern) -> None:
    found = first_error(row.example.splitlines())
    assert found is not None
    assert (found.kind, found.file, found.line) == (row.kind, row.file, row.line)
    assert found.message == row.message


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.message[:40])
def test_each_example_needs_its_own_row(row: ErrorPattern) -> None:
    assert any(row.match.match(line) for line in row.example.splitlines())
    earlier = ROWS[: ROWS.index(row)]
    for line in row.example.splitlines():
        taken = [
            other.message for other in earlier if other.match.match(line) and not (other.below or other.above)
        ]
        assert not taken, "an earlier row matches this example: it does not test its own row"


def test_the_order_of_the_table_is_that_of_strength() -> None:
    assert {row.strength for row in CERTAIN} == {Strength.CERTAIN}
    assert {row.strength for row in WEAK} == {Strength.WEAK}
    assert {row.strength for row in SUMMARIES} == {Strength.SUMMARY}


@pytest.mark.parametrize(
    ("head", "file"),
    [
        ("CMake Error in CMakeLists.txt:", "CMakeLists.txt"),  # as it generates
        ("CMake Error in sub/CMakeLists.txt:", "sub/CMakeLists.txt"),
        ("CMake Error (dev) in CMakeLists.txt:", "CMakeLists.txt"),
        ("CMake Error: no", ""),
    ],
)
def test_errors_of_cmake_without_a_line_are_certain(head: str, file: str) -> None:
    found = first_error([head, '  Imported target "x" includes non-existent path', "gmake: error: no"])
    assert found is not None
    assert (found.kind, found.file, found.line) == ("cmake", file, 0)


@pytest.mark.parametrize(
    "line",
    [
        "mold: error: no",
        "ld.lld: error: no",
        "mold: fatal: no",
        "ld: error: no",
        "/usr/bin/ld.gold: fatal error: no",
    ],
)
def test_a_word_such_as_error_is_no_file(line: str) -> None:
    found = first_error([line])
    assert found is not None
    assert (found.kind, found.file) == ("linker", "")
    assert found.message == line.partition(": ")[2]


def test_of_the_strongest_form_the_first_counts_and_of_the_weakest_the_last() -> None:
    certain = ["a.c:1:1: error: first", "a.c:2:1: error: second", "error: of something else"]
    weak = ["ERROR: could not find it here", "trying another mirror", "fatal: could not find it anywhere"]
    summary = ["error: it is missing", "error: command 'cc' failed with exit code 1"]
    messages = [found.message for found in map(first_error, (certain, weak, summary)) if found]
    assert messages == ["error: first", "fatal: could not find it anywhere", "error: it is missing"]
