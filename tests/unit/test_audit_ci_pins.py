"""What upstream's CI pins, read from a tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from audit_samples import target
from audit_site import config, services
from msgspec import structs

from groundwork import files
from pin_audit.ci_rules import NotInFile, lines, literal
from pin_audit.facts import AnyFact, AuditTarget, RecipeArchs, Scope, SourceOutcome, UpstreamArchs
from pin_audit.name_map import names
from pin_audit.repositories import Repositories
from pin_audit.request import AuditRequest, LocalTree
from pin_audit.sources import ci_pins
from pin_audit.statuses import Status
from pin_audit.table import tabulate

TRITON = ".ci/docker/triton_version.txt"
MATRIX = ".github/scripts/generate_binary_build_matrix.py"

#: as from 2.11 on
NEW = {
    MATRIX: """
CUDA_ARCHES = ["12.6", "13.0"]
CUDA_ARCHES_FULL_VERSION = {
    "12.6": "12.6.3",
    "13.0": "13.0.2",
    "xpu": "2025.3",
}
FULL_PYTHON_VERSIONS = ["3.12", "3.13", "3.13t"]
""",
    ".ci/docker/triton_version.txt": "3.7.1\n",
    ".ci/docker/requirements-ci.txt": """
#cmake==1
ninja==1.11.1.4
setuptools==78.1.1
packaging==24.0
cmake==3.31.6
""",
    "third_party/eigen_pin.txt": "5.0.1\n",
    ".ci/manywheel/build_env_setup.py": """
TORCH_CUDA_ARCH_LIST_TABLE: dict[str, dict[str, set[int]]] = {
    "12.6": {
        "x86_64": {50, 90},
        "aarch64": {80, 90},
    },
    "13.0": {
        "x86_64": {120, 75, 100},
        "aarch64": {80, 110, 120},
    },
}
""",
}


class MemoryTree:
    """A tree of texts, which counts how often it is read."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files
        self.requests: list[Sequence[str]] = []

    @property
    def commit(self) -> str:
        return "c" * 40

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        self.requests.append(paths)
        return {path: self.files[path].encode() for path in paths if path in self.files}

    def url(self, path: str, line: int | None = None) -> str:
        return f"https://example.org/{path}#L{line}"


@dataclass(frozen=True, kw_only=True)
class TreeRequest(AuditRequest):
    """A request whose tree is in memory."""

    memory: MemoryTree

    def tree(self) -> Any:
        """Return it."""
        return self.memory


def request(files: Mapping[str, str], folder: Path, package: str = "pytorch") -> TreeRequest:
    target = AuditTarget(package=package, version="2.13.0", repository="", tag="", wheel="", builds=())
    given = services(folder, offline=True)
    return TreeRequest(
        target=target, services=given, repositories=Repositories(given), configs=(config("linux-64"),),
        root=folder, memory=MemoryTree(files),
    )  # fmt: skip


def about(outcome: SourceOutcome, name: str) -> list[AnyFact]:
    return [fact for fact in outcome.facts if fact.name == name]


def values(facts: Sequence[AnyFact]) -> dict[str, str]:
    """Return value by where it holds."""
    return {fact.holds.words(()): fact.value or ";".join(getattr(fact, "archs", ())) for fact in facts}


def pins(files: Mapping[str, str], folder: Path) -> SourceOutcome:
    return ci_pins.read(request(files, folder))


def archs(files: Mapping[str, str], folder: Path) -> SourceOutcome:
    return ci_pins.read_archs(request(files, folder))


def test_every_value_of_pytorchs_tree_is_read_in_one_request(tmp_path: Path) -> None:
    asked = request(NEW, tmp_path)
    outcome = ci_pins.read(asked)
    assert [fact.trouble for fact in outcome.facts if fact.trouble] == []
    assert values(about(outcome, "cuda")) == {"CUDA 12.6": "12.6.3", "CUDA 13.0": "13.0.2"}
    found = {fact.name: fact.value for fact in outcome.facts}
    expected = {"triton": "3.7.1", "python": "3.12, 3.13, 3.13t", "eigen": "5.0.1", "cmake": "3.31.6"}
    assert found | expected == found
    (cmake,) = about(outcome, "cmake")
    assert (cmake.where.line, cmake.where.commit) == (6, "c" * 40)
    assert cmake.where.url == "https://example.org/.ci/docker/requirements-ci.txt#L6"
    assert len(asked.memory.requests) == 1


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
    assert not ci_pins.read(request({}, tmp_path, package="torch_unheard_of")).applies


@pytest.mark.parametrize(
    ("listed", "found", "trouble"),
    [
        ('{"90a", "100f"}', "10.0f;9.0a", ""),
        ('"75;80;90a;120+PTX"', "7.5;8.0;9.0a;12.0+PTX", ""),
        ('"7.5 10.3 12.1+PTX"', "7.5;10.3;12.1+PTX", ""),
        ('{"75", "Hopper"}', "", "75, Hopper"),
        ('"80-real;90-virtual"', "", "80-real;90-virtual"),
    ],
)
def test_a_list_is_read_as_a_whole_or_is_trouble(
    listed: str, found: str, trouble: str, tmp_path: Path
) -> None:
    path = ".ci/manywheel/build_env_setup.py"
    files = {**NEW, path: f'TORCH_CUDA_ARCH_LIST_TABLE = {{"13.0": {{"x86_64": {listed}}}}}\n'}
    (fact,) = archs(files, tmp_path).facts
    assert values([fact]) == {"CUDA 13.0, linux-64": found}
    assert fact.trouble.endswith(trouble)
    assert bool(fact.trouble) == bool(trouble)


@pytest.mark.parametrize("table", ['"7.5;9.0"', '{"x86_64": "7.5;9.0"}'])
def test_a_list_for_no_cuda_version_is_trouble(table: str, tmp_path: Path) -> None:
    path = ".ci/manywheel/build_env_setup.py"
    outcome = archs({**NEW, path: f"TORCH_CUDA_ARCH_LIST_TABLE = {table}\n"}, tmp_path)
    ours = SourceOutcome(
        source="recipe_archs",
        facts=(RecipeArchs(name="CUDA 13.0", archs=("9.0",), holds=Scope(cuda=("13.0",))),),
    )
    (row,) = tabulate(target(), [structs.replace(outcome, source="upstream_archs"), ours], names()).archs
    assert (row.name, row.verdict.status) == ("CUDA 13.0", Status.UNKNOWN)
    assert path in row.verdict.sentence


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
    outcome = ci_pins.read(request(files, tmp_path, package))
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


def test_a_file_of_a_local_tree_that_cannot_be_read_is_no_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit would show rows as if upstream did not have them."""

    def refuse(path: Path, **_: object) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(files, "open_regular", refuse)
    with pytest.raises(PermissionError, match=r"pin\.txt"):
        LocalTree(tmp_path).read(("pin.txt",))
