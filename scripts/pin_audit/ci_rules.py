"""Where upstream's CI writes down what it builds with and ships. Read by the audit, never executed.

A rule that no longer fits is reported, not left out: look the file up at the new version and add a rule before the old
one, which then gets ``until``; those from before the last release but two may go. Rules of one name, sense and package
are ways in which upstream writes the same thing: the first that yields something counts. Checked by hand against
upstream's files from 2.11 to 2.13.
"""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from pin_audit.ci_readers import Reader, lines, literal


@dataclass(frozen=True)
class CiRule:
    """Where one dependency's version is written in one respect."""

    name: str  #: of the dependency, as in name_map.yaml
    what: str  #: what the value is to upstream, for people: ``in the builder image``
    file: str  #: path in upstream's tree; ``*`` takes all that fit
    read: Reader
    packages: tuple[str, ...] = ("pytorch",)  #: those in whose trees the rule holds
    platforms: tuple[str, ...] = ()  #: those for which it holds; empty: all
    where: str = ""  #: a pattern that the path must match; its groups are conditions of the value
    until: str = ""  #: first version of the package that does not have it

    def holds(self, package: str, version: str) -> bool:
        """Whether the rule applies to a package's version; it does if the version cannot be parsed."""
        try:
            early_enough = not self.until or Version(Version(version).base_version) < Version(self.until)
        except InvalidVersion:
            early_enough = True
        return package in self.packages and early_enough


_MATRIX = ".github/scripts/generate_binary_build_matrix.py"
_INSTALL_CUDA = ".ci/docker/common/install_cuda.sh"
_TRITON = ".ci/docker/triton_version.txt"
_REQUIREMENTS = ".ci/docker/requirements-ci.txt"
_NCCL = ".ci/docker/ci_commit_pins/nccl*.txt"
_PYG_MATRIX = ".github/workflows/utils/full_matrix_linux.json"
_EXTENSION_MATRIX = ".github/workflows/building.yml"
_PYG = ("pyg-lib",)
_EXTENSIONS = ("pytorch_scatter", "pytorch_sparse", "pytorch_cluster", "pytorch_spline_conv")
_SHIPPED = "of the wheels"
_REQUIRED = "required by the wheels"
_IMAGE = "in the builder image"
_TESTED = "in the image of tests"
_BUILT_FOR = "wheels are built for"
_NUMBERS = r"(?P<value>\d+(?:\.\d+)+)"
_LIST = r"\[(?P<value>[^\]]+)\]"


def _required(distribution: str) -> Reader:
    """What the wheels require, by CUDA version."""
    return literal("PYTORCH_EXTRA_INSTALL_REQUIREMENTS", "cuda", requirement=distribution)


def _installed(pattern: str) -> Reader:
    """A line in the function that installs one CUDA version, ``install_130``; above all of them it holds for all."""
    return lines(pattern, under=r"^\s*(?:function\s+)?install_(?P<cuda>\d{3})\b")


_PYG_CUDA = lines(rf'"cuda-version":\s*{_LIST}', under=r'"torch-version":\s*"(?P<torch_version>[^"]+)"')
#: Two forms of one line: for the CUDA versions of the condition above, or for all with the first number in a variable.
_CUDSS = lines(
    rf"CUDSS_NAME=\"libcudss-linux-\$\{{arch_path\}}-{_NUMBERS}_cuda(?:(?P<major>\d+)|\$\{{CUDA_MAJOR\}})-archive",
    under=r"CUDA_VERSION.* =~ \^(?P<cuda>\d+\\\.(?:\d|\[\d-\d\]))\$",
)


def _tool(distribution: str) -> CiRule:
    """What CI builds and tests with."""
    return CiRule(distribution, _TESTED, _REQUIREMENTS, lines(rf"^{distribution}=={_NUMBERS}"))


PINS = (
    CiRule("cuda", _SHIPPED, _MATRIX, literal("CUDA_ARCHES_FULL_VERSION", "cuda")),
    CiRule("cuda", _REQUIRED, _MATRIX, _required("cuda-toolkit")),
    CiRule("cuda", _IMAGE, _INSTALL_CUDA, _installed(rf"^\s*install_cuda {_NUMBERS}")),
    CiRule("cudnn", _REQUIRED, _MATRIX, _required(r"nvidia-cudnn(-cu\d+)?")),
    CiRule("cudnn", _IMAGE, _INSTALL_CUDA, _installed(rf"^\s*CUDNN_VERSION={_NUMBERS}")),
    CiRule("nccl", _REQUIRED, _MATRIX, _required(r"nvidia-nccl(-cu\d+)?")),
    CiRule(
        "nccl",
        "built into the builder image",
        _NCCL,
        lines(r"^(?P<value>v\d\S*)\s*$"),
        where=r"/nccl(?:-cu(?P<cuda>\d+))?\.txt$",
    ),
    CiRule("triton", _REQUIRED, _TRITON, lines(rf"^{_NUMBERS}\s*$")),
    CiRule("python", _BUILT_FOR, _MATRIX, literal("FULL_PYTHON_VERSIONS")),
    CiRule("eigen", "fetched for the build", "third_party/eigen_pin.txt", lines(rf"^{_NUMBERS}\s*$")),
    CiRule("cudss", _TESTED, ".ci/docker/common/install_cudss.sh", _CUDSS),
    *map(_tool, ("cmake", "ninja", "packaging", "setuptools")),
    CiRule("cuda", _SHIPPED, _PYG_MATRIX, _PYG_CUDA, _PYG),
    CiRule("pytorch", _BUILT_FOR, _PYG_MATRIX, lines(rf'"torch-version":\s*"{_NUMBERS}"'), _PYG),
    CiRule("python", _BUILT_FOR, "pyproject.toml", lines(r'^build = "(?P<value>cp[^"]+)"'), _PYG),
    CiRule("cuda", _SHIPPED, _EXTENSION_MATRIX, lines(rf"^\s+cuda-version:\s*{_LIST}"), _EXTENSIONS),
    CiRule("pytorch", _BUILT_FOR, _EXTENSION_MATRIX, lines(rf"^\s+torch-version:\s*{_LIST}"), _EXTENSIONS),
    CiRule("python", _BUILT_FOR, _EXTENSION_MATRIX, lines(rf"^\s+python-version:\s*{_LIST}"), _EXTENSIONS),
)
NAMED = frozenset(rule.name for rule in PINS)

_ARCHS, _ARCHS_FILE = "gpu-architectures", ".ci/manywheel/build_env_setup.py"
_ARCH_TABLE = "TORCH_CUDA_ARCH_LIST_TABLE"
#: PTX besides the machine code; a file with this function leaves it to nightly builds.
_WITH_PTX = literal(_ARCH_TABLE, "cuda", "machine", ptx="_PTX_ARCHES", unless=r"(?m)^def _is_release_build\b")
_AS_PYTORCH = "# Set TORCH_CUDA_ARCH_LIST from PyTorch's built architectures"
#: The GPU architectures that upstream ships. Up to 2.12 a script computed them: those are not read.
ARCH_LISTS = (
    CiRule(_ARCHS, _SHIPPED, _ARCHS_FILE, _WITH_PTX),
    CiRule(_ARCHS, _SHIPPED, _ARCHS_FILE, literal(_ARCH_TABLE, "cuda", "machine")),
    CiRule(_ARCHS, _SHIPPED, _MATRIX, literal("TORCH_CUDA_ARCH_LIST", "cuda", "machine")),
    CiRule(
        _ARCHS,
        _SHIPPED,
        "setup.py",
        lines(_AS_PYTORCH, shown="those of the PyTorch it is built against"),
        _PYG,
    ),
    CiRule(
        _ARCHS,
        _SHIPPED,
        ".github/workflows/cuda/cu*-Linux-env.sh",
        lines(r'^export TORCH_CUDA_ARCH_LIST="(?P<value>[^"]+)"'),
        _EXTENSIONS,
        ("linux-64",),
        where=r"/cu(?P<cuda>11[78]|1[2-9]\d)-",
    ),
)
