"""Readers of single files of upstream's."""

from __future__ import annotations

import pytest

from pin_audit.ci_readers import NotInFile, Reader, lines, literal


def read(reader: Reader, text: str) -> list[tuple[str, int | None, dict[str, str]]]:
    return [(v.text, v.line, dict(v.groups)) for v in reader(text)]


def test_lines_leave_comments_out_and_know_what_they_stand_under() -> None:
    reader = lines(r"numpy==(?P<value>\S+)", under=r"^(?P<python>\w+)\)")
    text = "numpy==0\ncp31)\n  # numpy==1\n  numpy==2\ncp32)\n  numpy==3\n"
    assert read(reader, text) == [("0", 1, {}), ("2", 4, {"python": "cp31"}), ("3", 6, {"python": "cp32"})]


def test_python_dictionaries_give_a_value_for_each_key() -> None:
    reader = literal("V", "cuda", "machine")
    text = "V = {'1.0': {'a': 'x'}}\n"
    text += "V: dict[str, dict[str, str]] = {\n  '2.0': {'a': 'y',\n    'b': 'z'},\n  'xpu': {'a': 'no'}}\n"
    assert read(reader, text) == [
        ("y", 3, {"cuda": "2.0", "machine": "a"}),
        ("z", 4, {"cuda": "2.0", "machine": "b"}),
    ]


def test_python_lists_are_one_value() -> None:
    assert read(literal("V"), "V = ['a', 'b']") == [("a, b", 1, {})]


def test_python_sets_are_sorted_and_may_be_marked() -> None:
    reader = literal("V", ptx="M")
    assert read(reader, "V = {120, 75}\nM = {120}") == [("75, 120+PTX", 1, {})]
    assert read(reader, "V = {120, 75}\nM = {90}") == [("75, 120", 1, {})]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("W = 1", "assigns nothing to V"),
        ("def f():\n    V = 1", "assigns nothing to V"),
        ("V = f()", "computes V instead of writing it down"),
        ("V = {'a': os.environ['b']}", "computes V instead of writing it down"),
        ("V = (", "cannot be read as Python"),
        ("V = " + "[" * 5000, "cannot be read as Python"),
    ],
)
def test_python_that_is_no_literal_is_told(text: str, what: str) -> None:
    with pytest.raises(NotInFile, match=what):
        read(literal("V", "k"), text)
