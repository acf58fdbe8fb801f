"""Readers of single files of upstream's."""

from __future__ import annotations

import pytest

from megabuild.audit.ci_readers import NotFound, Reader, data, lines, literal, requirement


def read(reader: Reader, text: str) -> list[tuple[str, int | None, dict[str, str]]]:
    return [(v.text, v.line, dict(v.groups)) for v in reader(text)]


def test_lines_leave_comments_out_and_know_what_they_stand_under() -> None:
    reader = lines(r"numpy==(?P<value>\S+)", under=r"^(?P<python>\w+)\)")
    text = "numpy==0\ncp31)\n  # numpy==1\n  numpy==2\ncp32)\n  numpy==3\n"
    assert read(reader, text) == [("0", 1, {}), ("2", 4, {"python": "cp31"}), ("3", 6, {"python": "cp32"})]


def test_lines_may_be_those_under_one_label_only() -> None:
    reader = lines(r"V=(?P<value>\d+)", under=r"^(?P<label>[\w:*]+)\)", only="builder:cuda.*")
    text = "V=1\nbuilder:cpu)\n  V=2\nbuilder:cuda12*)\n  V=3\nother)\n  V=4\n"
    assert read(reader, text) == [("3", 5, {"label": "builder:cuda12*"})]


def test_requirements_files_know_comments_options_and_markers() -> None:
    text = "-r other.txt\n# numpy==1\nnumpy >= 2 ,<3 ; python_version < '3.14'  # why\nNumPy_Extra==3\nnumpy @ https://x.invalid/a\n"
    reader = requirement("numpy")
    assert read(reader, text)[0] == (">=2,<3", 3, {"marker": 'python_version < "3.14"'})


def test_a_list_in_a_toml_file_is_that_of_its_own_table() -> None:
    text = '[a]\nrequires = ["six==1"]\n\n[build-system]\n# requires = ["six==2"]\n'
    text += "requires = [\n  'x[y]',  # ]\n  'six>=3',\n]\n"
    assert read(requirement("six", table="build-system"), text) == [(">=3", 8, {})]
    with pytest.raises(NotFound, match="has no requirement 'six' in"):
        read(
            requirement("six", table="build-system"),
            "[a]\nrequires = ['six']\n",
        )
    with pytest.raises(NotFound, match="has no requirement 'seven' in"):
        read(requirement("seven", table="build-system"), text)


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
    reader = literal("V", marked="M", mark="+PTX")
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
    with pytest.raises(NotFound, match=what):
        read(literal("V", "k"), text)


def test_yaml_and_json_keep_versions_as_they_are_written() -> None:
    assert read(data("a", "b"), "a:\n  b: [3.10, 3.9]\n") == [("3.10, 3.9", 2, {})]
    text = '[\n {"x": "1", "y": ["p"]},\n {"x": "2",\n  "y": ["q"]}\n]'
    assert read(data("*", "y", beside="x"), text) == [("p", 2, {"x": "1"}), ("q", 4, {"x": "2"})]


@pytest.mark.parametrize("text", ["a: [", "b: 1\n", "- a\n", "a:\n  c: 1\n"])
def test_yaml_without_the_entry_is_told(text: str) -> None:
    with pytest.raises(NotFound):
        read(data("a", "b"), text)
