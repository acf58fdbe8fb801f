"""What upstream's CI pins, read from a tree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from audit_trees import MATRIX, NEW, MemoryTree, about, request, values

from pin_audit.ci_rules import NotInFile, literal
from pin_audit.facts import SourceOutcome, UpstreamArchs
from pin_audit.sources import ci_pins

TRITON = ".ci/docker/triton_version.txt"


def pins(files: Mapping[str, str], folder: Path, version: str = "2.13.0") -> SourceOutcome:
    return ci_pins.read(request(MemoryTree(files), folder, version=version))


def archs(files: Mapping[str, str], folder: Path) -> SourceOutcome:
    return ci_pins.read_archs(request(MemoryTree(files), folder))


def test_every_value_of_pytorchs_tree_is_read_in_one_request(tmp_path: Path) -> None:
    tree = MemoryTree(NEW)
    outcome = ci_pins.read(request(tree, tmp_path))
    assert [fact.trouble for fact in outcome.facts if fact.trouble] == []
    assert values(about(outcome, "cuda")) == {"CUDA 12.6": "12.6.3", "CUDA 13.0": "13.0.2"}
    found = {fact.name: fact.value for fact in outcome.facts}
    expected = {"triton": "3.7.1", "python": "3.12, 3.13, 3.13t", "eigen": "5.0.1", "cmake": "3.31.6"}
    assert found | expected == found
    (cmake,) = about(outcome, "cmake")
    assert (cmake.where.line, cmake.where.commit) == (6, "c" * 40)
    assert cmake.where.url == "https://example.org/.ci/docker/requirements-ci.txt#L6"
    assert len(tree.requests) == 1


def test_a_rule_that_no_longer_fits_is_trouble_that_names_file_and_rules(tmp_path: Path) -> None:
    gone = {path: text for path, text in NEW.items() if path != TRITON}
    (triton,) = about(pins(gone, tmp_path), "triton")
    assert (triton.value, TRITON in triton.trouble, "ci_rules.py" in triton.trouble) == ("", True, True)
    (triton,) = about(pins({**NEW, TRITON: "newest\n"}, tmp_path), "triton")
    assert "no line that fits" in triton.trouble
    computed = {**NEW, MATRIX: NEW[MATRIX].replace('["3.12", "3.13", "3.13t"]', "sorted(os.environ)")}
    (python,) = about(pins(computed, tmp_path), "python")
    assert "FULL_PYTHON_VERSIONS" in python.trouble
    (lists,) = archs({MATRIX: NEW[MATRIX]}, tmp_path).facts
    assert "build_env_setup.py" in lists.trouble
    nonsense = pins(dict.fromkeys(NEW, "\x00{[(\"'$(\n" * 50), tmp_path)
    assert nonsense.facts
    assert all(fact.trouble for fact in nonsense.facts)


def test_a_package_without_rules_has_no_such_source(tmp_path: Path) -> None:
    assert not ci_pins.read(request(MemoryTree({}), tmp_path, package="torch_unheard_of")).applies


def test_a_table_of_numbers_becomes_arch_lists_per_cuda_version_and_platform(tmp_path: Path) -> None:
    outcome = archs(NEW, tmp_path)
    assert values(outcome.facts) == {
        "CUDA 12.6, linux-64": "5.0;9.0",
        "CUDA 12.6, linux-aarch64": "8.0;9.0",
        "CUDA 13.0, linux-64": "7.5;10.0;12.0",
        "CUDA 13.0, linux-aarch64": "8.0;11.0;12.0",
    }
    assert isinstance(outcome.facts[0], UpstreamArchs)


@pytest.mark.parametrize(("text", "reason"), [
    ("W = 1", "assigns nothing to V"), ("def f():\n    V = 1", "assigns nothing to V"),
    ("V = f()", "plain Python"), ("V = {'a': os.environ['b']}", "plain Python"),
    ("V = (", "plain Python"), ("V = " + "[" * 5000, "plain Python"),
])  # fmt: skip
def test_python_that_is_no_literal_is_not_executed(text: str, reason: str) -> None:
    with pytest.raises(NotInFile, match=reason):
        literal("V", "k")(text)
