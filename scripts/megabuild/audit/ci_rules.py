"""What upstream's CI builds, ships and tests with, and where it writes that down. Read by the audit, never executed.

A rule that no longer fits is reported, not left out: look the file up at the new version and add a form, with ``until``
on the old one. Checked by hand against upstream's files from 2.6 to 2.13; where a value moved between two releases that
could not be told apart, the forms have no bounds and the newer one comes first.
"""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from megabuild.audit.ci_readers import Reader, data, lines, literal, requirement, submodule


@dataclass(frozen=True)
class Form:
    """One way in which upstream writes something down.

    Parameters
    ----------
    file:
        Path in upstream's tree; ``*`` takes all that fit, several with ``|`` between them the first that is there.
    read:
        How to read it.
    since, until:
        First version of the package that has it, and first that has not; empty: open.
    where:
        A pattern that the path must fit; its groups tell where a value holds.
    """

    file: str
    read: Reader
    since: str = ""
    until: str = ""
    where: str = ""

    def holds(self, version: str) -> bool:
        """Whether a version has this form; a version that is none may have any."""
        try:
            base = Version(Version(version).base_version)
        except InvalidVersion:
            return True
        return (not self.since or base >= Version(self.since)) and (
            not self.until or base < Version(self.until)
        )


@dataclass(frozen=True)
class Rule:
    """What is known of one dependency in one respect.

    Parameters
    ----------
    name:
        Of the dependency, as in names.yaml.
    what:
        What the value is to upstream, for people: ``in the builder image``.
    forms:
        The first of those that hold for a version and yield something counts.
    packages:
        Those in whose trees the rule holds.
    platforms, elsewhere:
        As in `megabuild.audit.facts.Holds`.
    every_cuda:
        Upstream has it for each CUDA version that it lists; where one has none, that is told.
    """

    name: str
    what: str
    forms: tuple[Form, ...]
    packages: tuple[str, ...] = ("pytorch",)
    platforms: tuple[str, ...] = ()
    elsewhere: str = ""
    every_cuda: bool = False


_MATRIX = ".github/scripts/generate_binary_build_matrix.py"
_CUDA = ".ci/docker/common/install_cuda.sh"
_TESTS = ".ci/docker/requirements-ci.txt"
_EXTENSIONS = ("pytorch_scatter", "pytorch_sparse", "pytorch_cluster", "pytorch_spline_conv")
_CMAKE = r"^cmake_minimum_required\(VERSION\s+(?P<value>\d+(?:\.\d+)*)"
_WHEELS = "required by the wheels"
_IMAGE = "in the builder image"
_BUILDING = "required for building"


def _wheels(distribution: str, since: str = "", until: str = "") -> tuple[Form, ...]:
    """What the wheels require, by CUDA version."""
    read = literal("PYTORCH_EXTRA_INSTALL_REQUIREMENTS", "cuda", requirement=distribution)
    return (Form(_MATRIX, read, since, until),)


def _in_image(pattern: str) -> Form:
    """A line in the function that installs one CUDA version, ``install_130``; above all of them it holds for all."""
    return Form(_CUDA, lines(pattern, under=r"^\s*(?:function\s+)?install_(?P<cuda>\d{3})\b"))


def _building(distribution: str, since: str = "") -> Rule:
    read = requirement(distribution, table="build-system")
    return Rule(distribution.replace("-", "_"), _BUILDING, (Form("pyproject.toml", read, since),))


def _matrix(name: str, what: str, key: str) -> Rule:
    path = ("jobs", "wheel", "strategy", "matrix", key)
    return Rule(name, what, (Form(".github/workflows/building.yml", data(*path)),), packages=_EXTENSIONS)


#: Where a package's CUDA versions are listed.
CUDA_VERSIONS = Rule("cuda", "", (Form(_MATRIX, literal("CUDA_ARCHES", join="")),))

PINS = (
    # ------------------------------------------------------------------------------------------------ CUDA's parts
    Rule("cuda", "of the wheels", (Form(_MATRIX, literal("CUDA_ARCHES_FULL_VERSION", "cuda")),)),
    # before 2.11, each part of the toolkit was a requirement of its own
    Rule("cuda", _WHEELS, _wheels("cuda-toolkit", since="2.11")),
    Rule(
        "cuda",
        _IMAGE,
        (
            _in_image(r"^\s*install_cuda (?P<value>\d+(?:\.\d+)+)"),
            _in_image(r"/compute/cuda/(?P<value>\d+(?:\.\d+)+)/local_installers/"),  # 2.6
        ),
        every_cuda=True,
    ),
    Rule("cudnn", _WHEELS, _wheels(r"nvidia-cudnn(-cu\d+)?")),
    Rule("cudnn", _IMAGE, (_in_image(r"^\s*CUDNN_VERSION=(?P<value>\d+(?:\.\d+)+)"),), every_cuda=True),
    Rule("cupti", _WHEELS, _wheels(r"nvidia-cuda-cupti(-cu\d+)?", until="2.11")),
    Rule("cupti", "as a part of cuda-toolkit, with its version", _wheels("cuda-toolkit", since="2.11")),
    Rule(
        "cupti",
        f"headers {_IMAGE}",
        (Form(_CUDA, lines(r"^CUDA_CUPTI_VERSION=(?P<value>\d+(?:\.\d+)+)"), since="2.14"),),
    ),
    Rule("cusparselt", _WHEELS, _wheels(r"nvidia-cusparselt(-cu\d+)?")),
    Rule(
        "cusparselt",
        _IMAGE,
        (_in_image(r"^\s*CUSPARSELT_VERSION=(?P<value>\d+(?:\.\d+)+)"),),
        every_cuda=True,
    ),
    Rule(
        "cudss",  # the wheels are built without
        "in the CI images",
        (
            Form(
                ".ci/docker/common/install_cudss.sh",
                lines(r"^\s*CUDSS_NAME=\S*-(?P<value>\d+(?:\.\d+)+)_cuda(?P<cuda>\d+)-archive"),
            ),
        ),
    ),
    Rule("nccl", _WHEELS, _wheels(r"nvidia-nccl(-cu\d+)?")),
    Rule(
        "nccl",
        "built into the builder image",
        (
            Form(
                ".ci/docker/ci_commit_pins/nccl*.txt",
                lines(r"^(?P<value>v\d\S*)\s*$"),
                where=r"/nccl(?:-cu(?P<cuda>\d+))?\.txt$",
            ),
            _in_image(r"^\s*NCCL_VERSION=(?P<value>v\d\S*)"),  # 2.6
        ),
    ),
    Rule("nvshmem", _WHEELS, _wheels(r"nvidia-nvshmem(-cu\d+)?", since="2.9")),
    Rule(
        "nvshmem",
        _IMAGE,
        (Form(_CUDA, lines(r"^NVSHMEM_VERSION=(?P<value>\d+(?:\.\d+)+)"), since="2.9"),),
    ),
    Rule("cufile", _WHEELS, _wheels(r"nvidia-cufile(-cu\d+)?", since="2.7", until="2.11")),
    Rule("cufile", "as a part of cuda-toolkit, with its version", _wheels("cuda-toolkit", since="2.11")),
    Rule(
        "magma",
        _IMAGE,
        (
            Form(
                ".ci/docker/common/install_magma.sh",
                lines(r'^\s*MAGMA_VERSION="?(?P<value>\d+(?:\.\d+)+)', which=slice(-1, None)),
            ),
        ),
    ),
    # ----------------------------------------------------------------------------------------- libraries and tools
    Rule(
        "mkl",
        f"{_IMAGE}, static",
        (Form(".ci/docker/common/install_mkl.sh", lines(r"^MKL_VERSION=(?P<value>\d+(?:\.\d+)+)")),),
        platforms=("linux-64",),
    ),
    Rule(
        "openblas",
        _IMAGE,
        (
            Form(
                ".ci/docker/common/install_openblas.sh",
                lines(r'^\s*OPENBLAS_VERSION=(?:\$\{OPENBLAS_VERSION:-)?"?(?P<value>v[\d.]+)'),
            ),
            Form(  # to 2.7: the branch that is cloned
                ".ci/docker/common/install_openblas.sh",
                lines(r"^\s*git clone .*/OpenBLAS\.git -b (?P<value>v[\d.]+)"),
            ),
        ),
        platforms=("linux-aarch64",),
    ),
    Rule(
        "triton",
        _WHEELS,
        (Form(".ci/docker/triton_version.txt", lines(r"^(?P<value>\d+(?:\.\d+)+)\s*$")),),
    ),
    Rule(
        "numpy",
        "the wheels are built with",
        (
            Form(
                ".ci/manywheel/build_install_deps.py",
                literal("NUMPY_PINS", "python", otherwise="DEFAULT_NUMPY"),
            ),
            Form(
                ".ci/manywheel/build_install_deps.sh|.ci/manywheel/build_common.sh",
                lines(
                    r"pip install .*\bnumpy==(?P<value>\d+(?:\.\d+)+)",
                    under=r"^\s*(?P<python>cp[\w*|]+|\*)\)\s*$",
                ),
            ),
        ),
    ),
    _building("numpy"),
    Rule("numpy", "CI tests with", (Form(_TESTS, requirement("numpy")),)),
    _building("cmake"),
    Rule("cmake", "minimum", (Form("CMakeLists.txt", lines(_CMAKE)),)),
    Rule(
        "cmake",
        "in the CI images",
        (
            Form(_TESTS, requirement("cmake")),
            Form(".ci/docker/build.sh", lines(r"^CMAKE_VERSION=(?P<value>\d+(?:\.\d+)+)")),  # 2.6
        ),
    ),
    _building("ninja"),
    Rule("ninja", "in the CI images", (Form(_TESTS, requirement("ninja")),)),
    _building("setuptools"),
    _building("packaging", since="2.8"),
    _building("pyyaml"),
    _building("requests"),
    _building("typing-extensions"),
    Rule("protobuf", "in the CI images", (Form(_TESTS, requirement("protobuf")),)),
    # before 2.8, NNPACK's CMake files downloaded it, inside the submodule
    _building("six", since="2.8"),
    Rule("pybind11", "submodule", (Form(".gitmodules", submodule("third_party/pybind11")),)),
    Rule(
        "onednn",
        "submodule of a submodule, third_party/ideep/mkl-dnn",
        (Form(".gitmodules", submodule("third_party/ideep")),),
    ),
    Rule(
        "onednn",
        "of XPU builds",
        (Form("cmake/Modules/FindMKLDNN.cmake", lines(r"^\s*GIT_TAG\s+(?P<value>\w[\w.-]*)")),),
        elsewhere="XPU",
    ),
    Rule("xnnpack", "submodule", (Form(".gitmodules", submodule("third_party/XNNPACK")),)),
    Rule("python", "wheels are built for", (Form(_MATRIX, literal("FULL_PYTHON_VERSIONS")),)),
    Rule(
        "gcc",
        "of the wheels",
        (
            Form(  # what the builder images are made with
                ".ci/docker/manywheel/build.sh",
                lines(
                    r"--build-arg DEVTOOLSET_VERSION=(?P<value>\d+)",
                    under=r"^\s*(?P<label>[\w:.*|-]+)\)\s*$",
                    only=r"manylinux2_28-builder:cuda.*|cuda-manylinux_2_28",
                ),
            ),
            Form(  # what they are made with otherwise
                ".ci/docker/manywheel/Dockerfile_2_28",
                lines(r"^ARG DEVTOOLSET_VERSION=(?P<value>\d+)", which=slice(1)),
            ),
        ),
        platforms=("linux-64",),
    ),
    # ------------------------------------------------------------------------------------------------ PyTorch Geometric
    Rule(
        "cuda",
        "of the wheels",
        (
            Form(
                ".github/workflows/utils/full_matrix_linux.json",
                data("*", "cuda-version", beside="torch-version"),
            ),
        ),
        packages=("pyg-lib",),
    ),
    Rule(
        "pytorch",
        "wheels are built for",
        (Form(".github/workflows/utils/full_matrix_linux.json", data("*", "torch-version")),),
        packages=("pyg-lib",),
    ),
    Rule(
        "python",
        "wheels are built for",
        (Form("pyproject.toml", lines(r'^build = "(?P<value>cp[^"]+)"')),),
        packages=("pyg-lib",),
    ),
    Rule("cmake", "minimum", (Form("CMakeLists.txt", lines(_CMAKE)),), packages=("pyg-lib",)),
    _matrix("cuda", "of the wheels", "cuda-version"),
    _matrix("pytorch", "wheels are built for", "torch-version"),
    _matrix("python", "wheels are built for", "python-version"),
)

_ARCHS = ".ci/manywheel/build_env_setup.py"
#: The GPU architectures that upstream ships. Up to 2.12 a script computed them: those are not read.
ARCH_LISTS = (
    Rule(
        "gpu-architectures",
        "of the wheels",
        (
            Form(
                _ARCHS,
                literal("TORCH_CUDA_ARCH_LIST_TABLE", "cuda", "machine", marked="_PTX_ARCHES", mark="+PTX"),
                until="2.14",
            ),
            # PTX in nightly builds only
            Form(_ARCHS, literal("TORCH_CUDA_ARCH_LIST_TABLE", "cuda", "machine"), since="2.14"),
            Form(_MATRIX, literal("TORCH_CUDA_ARCH_LIST", "cuda", "machine")),
        ),
    ),
    Rule(
        "gpu-architectures",
        "of the wheels",
        (
            Form(
                "setup.py",
                lines(
                    "# Set TORCH_CUDA_ARCH_LIST from PyTorch's built architectures",
                    shown="those of the PyTorch it is built against",
                ),
            ),
        ),
        packages=("pyg-lib",),
    ),
    Rule(
        "gpu-architectures",
        "of the wheels",
        (
            Form(
                ".github/workflows/cuda/cu*-Linux-env.sh",
                lines(r'^export TORCH_CUDA_ARCH_LIST="(?P<value>[^"]+)"'),
                where=r"/cu(?P<cuda>11[78]|1[2-9]\d)-",
            ),
        ),
        packages=_EXTENSIONS,
        platforms=("linux-64",),
    ),
)
