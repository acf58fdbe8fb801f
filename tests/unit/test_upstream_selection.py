"""Which of PyTorch's own tests the selection leaves out, by the build that is tested."""

from __future__ import annotations

from dataclasses import replace

import pytest
from _pytest.mark.expression import Expression

from upstream_tests.selection import Build, Part, Selection, read_selection

#: PyTorch 2.6.0 with CUDA for ARM, as Debian would build it.
BUILD = Build(version="2.6.0+debian", words=frozenset({"cuda", "generic", "aarch64", "python3.12"}))


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("", True),
        ("cuda", True),
        ("cpu", False),
        ("aarch64 cuda", True),
        ("aarch64 cpu", False),
        ("x86_64 cuda", False),
        ("python3.12 generic aarch64", True),
        ("python3.13 generic aarch64", False),
        ("<2.7", True),
        ("<2.6", False),
        (">=2.6 <2.7", True),
        (">=2.6 <2.6", False),
        ("<2.7 cuda", True),
        ("<2.7 cpu", False),
        (">=2.7 cuda", False),
        ("==2.6.0", True),
    ],
)
def test_all_words_of_a_condition_must_hold(condition: str, holds: bool) -> None:
    assert BUILD.meets(condition) == holds
    sections = {f"skip {condition}".strip(): {"test_a.py::*": "reason"}}
    sections[f"may be empty {condition}".strip()] = {"test_b.py": "reason"}
    selection = Selection(sections=sections)
    assert bool(selection.skips(BUILD)) == holds
    assert selection.may_be_empty("test_b.py", BUILD) == holds
    assert not selection.may_be_empty("test_a.py", BUILD)


@pytest.mark.parametrize("missing", sorted(BUILD.words))
def test_a_build_that_lacks_one_word_of_a_condition_skips_nothing(missing: str) -> None:
    selection = Selection(sections={f"skip {' '.join(sorted(BUILD.words))}": {"test_a.py::*": "reason"}})
    assert selection.skips(BUILD) == [("test_a.py::*", "reason")]
    assert selection.skips(replace(BUILD, words=BUILD.words - {missing})) == []


def test_an_expression_of_several_lines_is_one_for_pytest() -> None:
    selection = read_selection()
    files = [name for part in Part for name in selection.sections[part.value]]
    assert files
    for name in files:
        expression = selection.keywords(name)
        assert "\n" not in expression
        Expression.compile(expression or "all")
