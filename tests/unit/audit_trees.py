"""Upstream trees in memory, small ones in the form of PyTorch's files, and requests on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audit_site import config

from pin_audit.facts import AnyFact, AuditTarget, SourceOutcome
from pin_audit.repositories import Repositories
from pin_audit.request import AuditRequest
from pin_audit.services import Services

MATRIX = ".github/scripts/generate_binary_build_matrix.py"


class MemoryTree:
    """A tree of texts, which counts how often it is read."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files
        self.requests: list[Sequence[str]] = []

    @property
    def commit(self) -> str:
        return "c" * 40

    def names(self) -> Sequence[str]:
        return sorted(self.files)

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


def request(
    tree: MemoryTree, folder: Path, *, package: str = "pytorch", version: str = "2.13.0"
) -> AuditRequest:
    """Return a request about a tree."""
    target = AuditTarget(package=package, version=version, repository="", tag="", wheel="", builds=())
    services = Services(folder, offline=True)
    return TreeRequest(
        target=target, services=services, repositories=Repositories(services), configs=(config("linux-64"),),
        root=folder, memory=tree,
    )  # fmt: skip


def about(outcome: SourceOutcome, name: str, what: str = "") -> list[AnyFact]:
    """Return the findings on one dependency, in one respect if that is named."""
    return [f for f in outcome.facts if f.name == name and what in getattr(f, "what", "")]


def values(facts: Sequence[AnyFact]) -> dict[str, str]:
    """Return value by where it holds."""
    return {fact.holds.words(()): fact.value or ";".join(getattr(fact, "archs", ())) for fact in facts}


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
