"""What upstream's CI pins, read from a tree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from audit_trees import MATRIX, NEW, MemoryTree, about, request, values

from pin_audit.ci_rules import NotInFile, lines, literal
from pin_audit.facts import SourceOutcome, UpstreamArchs
from pin_audit.request import LocalTree
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
    assert (triton.value, TRITON in triton.trouble, "ci_rules.py" in triton.trouble) == ("", True, True)
    computed = {**NEW, MATRIX: NEW[MATRIX].replace('["3.12", "3.13", "3.13t"]', "sorted(os.environ)")}
    (python,) = about(pins(computed, tmp_path), "python")
    assert (python.value, "FULL_PYTHON_VERSIONS" in python.trouble) == ("", True)
    (lists,) = archs({MATRIX: NEW[MATRIX]}, tmp_path).facts
    assert "build_env_setup.py" in lists.trouble
    nonsense = pins(dict.fromkeys(NEW, "\x00{[(\"'$(\n" * 50), tmp_path)
    assert nonsense.facts
    assert all(fact.trouble for fact in nonsense.facts)


def test_a_table_of_numbers_becomes_arch_lists_per_cuda_version_and_platform(tmp_path: Path) -> None:
    outcome = archs(NEW, tmp_path)
    assert values(outcome.facts) == {
        "CUDA 12.6, linux-64": "5.0;9.0",
        "CUDA 12.6, linux-aarch64": "8.0;9.0",
        "CUDA 13.0, linux-64": "7.5;10.0;12.0",
        "CUDA 13.0, linux-aarch64": "8.0;11.0;12.0",
    }
    assert isinstance(outcome.facts[0], UpstreamArchs)
    assert not ci_pins.read(request(MemoryTree({}), tmp_path, package="torch_unheard_of")).applies


EXTENSION = """\
      matrix:
        python-version: [3.8, 3.10]
        torch-version: [2.0.0, 2.1.0]
        cuda-version: ['cpu', 'cu121']
"""
PYG_LIB = '[\n  {\n    "torch-version": "2.13.0",\n  },\n  {\n    "torch-version": "2.12.0",\n  }\n]\n'


@pytest.mark.parametrize(
    ("package", "files", "expected"),
    [
        (
            "pytorch_scatter",
            {".github/workflows/building.yml": EXTENSION},
            {("python", "3.8, 3.10", 2), ("pytorch", "2.0.0, 2.1.0", 3), ("cuda", "cpu, cu121", 4)},
        ),
        (
            "pyg-lib",
            {
                ".github/workflows/utils/full_matrix_linux.json": PYG_LIB,
                "pyproject.toml": '[tool.cibuildwheel]\nbuild = "cp3{13,14}-*"\n',
            },
            {("pytorch", "2.13.0", 3), ("pytorch", "2.12.0", 6), ("python", "cp3{13,14}-*", 2)},
        ),
    ],
)
def test_extensions_have_a_matrix(
    package: str, files: dict[str, str], expected: set[tuple[str, str, int]], tmp_path: Path
) -> None:
    outcome = ci_pins.read(request(MemoryTree(files), tmp_path, package=package))
    assert {(fact.name, fact.value, fact.where.line) for fact in outcome.facts} == expected


def test_lines_leave_comments_out() -> None:
    values = lines(r"numpy==(?P<value>\S+)")("numpy==0\n  # numpy==1\n  'numpy==2'\n")
    assert [(value.text, value.line) for value in values] == [("0", 1), ("2", 3)]


@pytest.mark.parametrize(("text", "reason"), [
    ("W = 1", "no value assigned to V"), ("def f():\n    V = 1", "no value assigned to V"),
    ("V = f()", "V cannot be read"), ("V = {'a': os.environ['b']}", "V cannot be read"),
    ("V = (", "V cannot be read"), ("V = " + "[" * 5000, "V cannot be read"),
])  # fmt: skip
def test_python_that_is_no_literal_is_not_executed(text: str, reason: str) -> None:
    with pytest.raises(NotInFile, match=reason):
        literal("V", "k")(text)


def test_a_local_tree_has_regular_files_and_follows_no_link(tmp_path: Path) -> None:
    tree, secret = tmp_path / "tree", tmp_path / "secret"
    (tree / "third_party").mkdir(parents=True)
    secret.mkdir()
    for file in (tree / "third_party" / "eigen_pin.txt", secret / "triton_version.txt"):
        file.write_text("5.0.1\n", encoding="utf-8")
    (tree / ".ci").symlink_to(secret)
    (tree / "link.txt").symlink_to(secret / "triton_version.txt")
    paths = ("third_party/eigen_pin.txt", ".ci/triton_version.txt", "link.txt", "third_party", "missing")
    assert LocalTree(tree).read(paths) == {"third_party/eigen_pin.txt": b"5.0.1\n"}
