"""What upstream's CI builds, ships and tests with, and where it writes that down. Read by the audit, never executed.

A rule that no longer fits is reported, not left out: look the file up at the new version and add a form, with ``until``
on the old one; forms from before the last release but two may go. Checked by hand against upstream's files from 2.11 to
2.13; where a value moved between two releases that could not be told apart, the forms have no bounds and the newer one
comes first.
"""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from megabuild.audit.ci_readers import Reader, data, lines, literal, requirement


@dataclass(frozen=True)
class Form:
    """One way in which upstream writes something down."""

    #: Path in upstream's tree; ``*`` takes all that fit, several with ``|`` between them the first that is there.
    file: str
    read: Reader
    since: str = ""  #: first version of the package that has it
    until: str = ""  #: first version that has not
    where: str = ""  #: a pattern that the path must fit; its groups tell where a value holds

    def holds(self, version: str) -> bool:
        """Whether a version has this form; a version that is none may have any."""
        try:
            base = Version(Version(version).base_version)
        except InvalidVersion:
            return True
        late_enough = not self.since or base >= Version(self.since)
        return late_enough and (not self.until or base < Version(self.until))


@dataclass(frozen=True)
class Rule:
    """What is known of one dependency in one respect."""

    name: str  #: of the dependency, as in names.yaml
    what: str  #: what the value is to upstream, for people: ``in the builder image``
    forms: tuple[Form, ...]  #: the first of those that hold for a version and yield something counts
    packages: tuple[str, ...] = ("pytorch",)  #: those in whose trees the rule holds
    platforms: tuple[str, ...] = ()  #: those for which it holds; empty: all


_MATRIX = ".github/scripts/generate_binary_build_matrix.py"
_COMMON = ".ci/docker/common"
_TESTS = ".ci/docker/requirements-ci.txt"
_PYG_MATRIX = ".github/workflows/utils/full_matrix_linux.json"
_PYG = ("pyg-lib",)
_EXTENSIONS = ("pytorch_scatter", "pytorch_sparse", "pytorch_cluster", "pytorch_spline_conv")
_WHEELS = "required by the wheels"
_IMAGE = "in the builder image"
_IMAGES = "in the CI images"
_PART = "as a part of cuda-toolkit, with its version"
_NUMBERS = r"(?P<value>\d+(?:\.\d+)+)"
_CMAKE = lines(r"^cmake_minimum_required\(VERSION\s+(?P<value>\d+(?:\.\d+)*)")


def _rule(
    name: str,
    what: str,
    *forms: Form,
    packages: tuple[str, ...] = ("pytorch",),
    platforms: tuple[str, ...] = (),
) -> Rule:
    return Rule(name=name, what=what, forms=forms, packages=packages, platforms=platforms)


def _wheels(distribution: str) -> Form:
    """What the wheels require, by CUDA version."""
    return Form(_MATRIX, literal("PYTORCH_EXTRA_INSTALL_REQUIREMENTS", "cuda", requirement=distribution))


def _in_image(pattern: str) -> Form:
    """A line in the function that installs one CUDA version, ``install_130``; above all of them it holds for all."""
    read = lines(pattern, under=r"^\s*(?:function\s+)?install_(?P<cuda>\d{3})\b")
    return Form(f"{_COMMON}/install_cuda.sh", read)


def _installed(script: str, pattern: str, since: str = "", which: slice = slice(None)) -> Form:
    """A line of a script that installs something into the images."""
    return Form(f"{_COMMON}/{script}", lines(pattern, which=which), since)


def _building(distribution: str) -> Rule:
    form = Form("pyproject.toml", requirement(distribution, table="build-system"))
    return _rule(distribution.replace("-", "_"), "required for building", form)


def _tested(distribution: str, what: str = _IMAGES) -> Rule:
    return _rule(distribution, what, Form(_TESTS, requirement(distribution)))


def _pyg_matrix(name: str, what: str, key: str) -> Rule:
    form = Form(".github/workflows/building.yml", data("jobs", "wheel", "strategy", "matrix", key))
    return _rule(name, what, form, packages=_EXTENSIONS)


PINS = (
    # ------------------------------------------------------------------------------------------------ CUDA's parts
    _rule("cuda", "of the wheels", Form(_MATRIX, literal("CUDA_ARCHES_FULL_VERSION", "cuda"))),
    _rule("cuda", _WHEELS, _wheels("cuda-toolkit")),
    _rule("cuda", _IMAGE, _in_image(rf"^\s*install_cuda {_NUMBERS}")),
    _rule("cudnn", _WHEELS, _wheels(r"nvidia-cudnn(-cu\d+)?")),
    _rule("cudnn", _IMAGE, _in_image(rf"^\s*CUDNN_VERSION={_NUMBERS}")),
    _rule("cupti", _PART, _wheels("cuda-toolkit")),
    _rule(
        "cupti",
        f"headers {_IMAGE}",
        _installed("install_cuda.sh", rf"^CUDA_CUPTI_VERSION={_NUMBERS}", "2.14"),
    ),
    _rule("cusparselt", _WHEELS, _wheels(r"nvidia-cusparselt(-cu\d+)?")),
    _rule("cusparselt", _IMAGE, _in_image(rf"^\s*CUSPARSELT_VERSION={_NUMBERS}")),
    _rule(
        "cudss",  # the wheels are built without
        _IMAGES,
        _installed("install_cudss.sh", rf"^\s*CUDSS_NAME=\S*-{_NUMBERS}_cuda(?P<cuda>\d+)-archive"),
    ),
    _rule("nccl", _WHEELS, _wheels(r"nvidia-nccl(-cu\d+)?")),
    _rule(
        "nccl",
        "built into the builder image",
        Form(
            ".ci/docker/ci_commit_pins/nccl*.txt",
            lines(r"^(?P<value>v\d\S*)\s*$"),
            where=r"/nccl(?:-cu(?P<cuda>\d+))?\.txt$",
        ),
    ),
    _rule("nvshmem", _WHEELS, _wheels(r"nvidia-nvshmem(-cu\d+)?")),
    _rule("nvshmem", _IMAGE, _installed("install_cuda.sh", rf"^NVSHMEM_VERSION={_NUMBERS}")),
    _rule("cufile", _PART, _wheels("cuda-toolkit")),
    _rule(
        "magma",
        _IMAGE,
        _installed("install_magma.sh", rf'^\s*MAGMA_VERSION="?{_NUMBERS}', which=slice(-1, None)),
    ),
    # ----------------------------------------------------------------------------------------- libraries and tools
    _rule(
        "mkl",
        f"{_IMAGE}, static",
        _installed("install_mkl.sh", rf"^MKL_VERSION={_NUMBERS}"),
        platforms=("linux-64",),
    ),
    _rule(
        "openblas",
        _IMAGE,
        _installed(
            "install_openblas.sh", r'^\s*OPENBLAS_VERSION=(?:\$\{OPENBLAS_VERSION:-)?"?(?P<value>v[\d.]+)'
        ),
        platforms=("linux-aarch64",),
    ),
    _rule("triton", _WHEELS, Form(".ci/docker/triton_version.txt", lines(rf"^{_NUMBERS}\s*$"))),
    _rule(
        "numpy",
        "the wheels are built with",
        Form(
            ".ci/manywheel/build_install_deps.py", literal("NUMPY_PINS", "python", otherwise="DEFAULT_NUMPY")
        ),
        Form(
            ".ci/manywheel/build_install_deps.sh|.ci/manywheel/build_common.sh",
            lines(rf"pip install .*\bnumpy=={_NUMBERS}", under=r"^\s*(?P<python>cp[\w*|]+|\*)\)\s*$"),
        ),
    ),
    _building("numpy"),
    _tested("numpy", "CI tests with"),
    _building("cmake"),
    _rule("cmake", "minimum", Form("CMakeLists.txt", _CMAKE)),
    _tested("cmake"),
    _building("ninja"),
    _tested("ninja"),
    _building("setuptools"),
    _building("packaging"),
    _building("pyyaml"),
    _building("requests"),
    _building("typing-extensions"),
    _tested("protobuf"),
    _building("six"),
    _rule("python", "wheels are built for", Form(_MATRIX, literal("FULL_PYTHON_VERSIONS"))),
    _rule(
        "gcc",
        "of the wheels",
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
        platforms=("linux-64",),
    ),
    # ------------------------------------------------------------------------------------------------ PyTorch Geometric
    _rule(
        "cuda",
        "of the wheels",
        Form(_PYG_MATRIX, data("*", "cuda-version", beside="torch-version")),
        packages=_PYG,
    ),
    _rule("pytorch", "wheels are built for", Form(_PYG_MATRIX, data("*", "torch-version")), packages=_PYG),
    _rule(
        "python",
        "wheels are built for",
        Form("pyproject.toml", lines(r'^build = "(?P<value>cp[^"]+)"')),
        packages=_PYG,
    ),
    _rule("cmake", "minimum", Form("CMakeLists.txt", _CMAKE), packages=_PYG),
    _pyg_matrix("cuda", "of the wheels", "cuda-version"),
    _pyg_matrix("pytorch", "wheels are built for", "torch-version"),
    _pyg_matrix("python", "wheels are built for", "python-version"),
)

_ARCHS = ".ci/manywheel/build_env_setup.py"
_TABLE = "TORCH_CUDA_ARCH_LIST_TABLE"
#: The GPU architectures that upstream ships. Up to 2.12 a script computed them: those are not read.
ARCH_LISTS = (
    _rule(
        "gpu-architectures",
        "of the wheels",
        Form(_ARCHS, literal(_TABLE, "cuda", "machine", marked="_PTX_ARCHES", mark="+PTX"), until="2.14"),
        Form(_ARCHS, literal(_TABLE, "cuda", "machine"), since="2.14"),  # PTX in nightly builds only
        Form(_MATRIX, literal("TORCH_CUDA_ARCH_LIST", "cuda", "machine")),
    ),
    _rule(
        "gpu-architectures",
        "of the wheels",
        Form(
            "setup.py",
            lines(
                "# Set TORCH_CUDA_ARCH_LIST from PyTorch's built architectures",
                shown="those of the PyTorch it is built against",
            ),
        ),
        packages=_PYG,
    ),
    _rule(
        "gpu-architectures",
        "of the wheels",
        Form(
            ".github/workflows/cuda/cu*-Linux-env.sh",
            lines(r'^export TORCH_CUDA_ARCH_LIST="(?P<value>[^"]+)"'),
            where=r"/cu(?P<cuda>11[78]|1[2-9]\d)-",
        ),
        packages=_EXTENSIONS,
        platforms=("linux-64",),
    ),
)
