"""Upstream trees in memory, small ones in the form of PyTorch's files, and requests on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from megabuild.configs.config import Config
from pin_audit.facts import AnyFact, AuditTarget, SourceOutcome
from pin_audit.request import AuditRequest
from pin_audit.services import Services

MATRIX = ".github/scripts/generate_binary_build_matrix.py"
INSTALL_CUDA = ".ci/docker/common/install_cuda.sh"


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


def request(
    tree: MemoryTree, folder: Path, *, package: str = "pytorch", version: str = "2.13.0"
) -> AuditRequest:
    """Return a request about a tree; the config is for CUDA 12.9."""
    target = AuditTarget(
        package=package,
        version=version,
        repository="",
        tag="",
        wheel="",
        builds=(),
    )
    config = Config(
        name="some_config",
        platform="linux-64",
        accelerator="cuda129",
        cuda_version="12.9",
        blas="mkl",
        provider="conda-forge",
        torch_version=version,
        path=folder / "some_config.yaml",
        variant={},
        zip_keys=(),
        pythons=("3.12",),
        docker_image="",
    )
    return AuditRequest(
        target=target,
        services=Services(folder, offline=True),
        repository=lambda: tree,  # type: ignore[arg-type, return-value]
        configs=(config,),
        root=folder,
    )


def about(outcome: SourceOutcome, name: str, what: str = "") -> list[AnyFact]:
    """Return the findings on one dependency, in one respect if that is named."""
    return [f for f in outcome.facts if f.name == name and what in getattr(f, "what", "")]


def values(facts: Sequence[AnyFact]) -> dict[str, str]:
    """Return value by where it holds."""
    return {fact.holds.words(()): fact.value or ";".join(getattr(fact, "archs", ())) for fact in facts}


#: as from 2.11 on: one requirement stands for the whole toolkit, versions are arguments of functions
NEW = {
    MATRIX: """
CUDA_ARCHES = ["12.6", "13.0"]
CUDA_ARCHES_FULL_VERSION = {
    "12.6": "12.6.3",
    "13.0": "13.0.2",
}
CUDA_AARCH64_ARCHES = ["13.0-aarch64"]
PYTORCH_EXTRA_INSTALL_REQUIREMENTS = {
    "12.6": (
        "cuda-toolkit[cupti,cufile]==12.6.3; platform_system == 'Linux' | "
        "nvidia-cudnn-cu12==9.10.2.21; platform_system == 'Linux' | "
        "nvidia-cusparselt-cu12==0.7.1; platform_system == 'Linux' | "
        "nvidia-nvshmem-cu12==3.4.5; platform_system == 'Linux' | "
        "nvidia-nccl-cu12==2.29.3; platform_system == 'Linux'"
    ),
    "13.0": (
        "cuda-toolkit[cupti,cufile]==13.0.2; platform_system == 'Linux' | "
        "nvidia-cudnn-cu13==9.20.0.48; platform_system == 'Linux' | "
        "nvidia-cusparselt-cu13==0.8.1; platform_system == 'Linux' | "
        "nvidia-nvshmem-cu13==3.4.5; platform_system == 'Linux' | "
        "nvidia-nccl-cu13==2.29.7; platform_system == 'Linux'"
    ),
    "xpu": "mkl==2025.3.1 | tbb==2022.3.1",
}
FULL_PYTHON_VERSIONS = ["3.12", "3.13", "3.13t"]
""",
    INSTALL_CUDA: """#!/bin/bash
NVSHMEM_VERSION=3.4.5

function install_cuda {
  version=$1
  wget -q https://downloads.invalid/compute/cuda/${version}/local_installers/$2.run
}

function install_126 {
  CUDNN_VERSION=9.10.2.21
  CUSPARSELT_VERSION=0.7.1.0
  install_cuda 12.6.3 cuda_12.6.3_linux
}

function install_129 {
  CUDNN_VERSION=9.20.0.1
  CUSPARSELT_VERSION=0.8.1.1
  install_cuda 12.9.1 cuda_12.9.1_linux
}

function install_130 {
  CUDNN_VERSION=9.20.0.48
  CUSPARSELT_VERSION=0.8.1.1
  install_cuda 13.0.2 cuda_13.0.2_linux
}

while test $# -gt 0
do
    case "$1" in
    12.6|12.6.*) install_126;
        ;;
    12.9|12.9.*) install_129;
        ;;
    13.0|13.0.*) install_130;
        ;;
    *) echo "no such CUDA: $1"; exit 1
        ;;
    esac
    shift
done
""",
    ".ci/docker/ci_commit_pins/nccl.txt": "v2.29.7-1\n",
    ".ci/docker/ci_commit_pins/nccl-cu126.txt": "v2.29.3-1\n",
    ".ci/docker/triton_version.txt": "3.7.1\n",
    ".ci/docker/requirements-ci.txt": """
#cmake==1
ninja==1.11.1.4
setuptools==78.1.1
packaging==24.0
cmake==3.31.6
""",
    "third_party/eigen_pin.txt": "5.0.1\n",
    ".ci/docker/common/install_cudss.sh": """
CUDSS_NAME="libcudss-linux-${arch_path}-0.7.0.20_cuda${CUDA_MAJOR}-archive"
""",
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
_PTX_ARCHES: set[int] = {120}
""",
}
