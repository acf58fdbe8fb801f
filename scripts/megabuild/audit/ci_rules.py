"""Where upstream's CI writes down what it builds with and ships. Read by the audit, never executed.

A rule that no longer fits is reported, not left out: look the file up at the new version and add a form, with ``until``
on the old one; forms from before the last release but two may go. Checked by hand against upstream's files from 2.11 to
2.13; where a value moved between two releases that could not be told apart, the forms have no bounds and the newer one
comes first.
"""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from megabuild.audit.ci_readers import Reader, lines, literal


@dataclass(frozen=True)
class CiForm:
    """One way in which upstream writes something down."""

    file: str  #: path in upstream's tree; ``*`` takes all that fit
    read: Reader
    since: str = ""  #: first version of the package that has it
    until: str = ""  #: first version that has not
    where: str = ""  #: a pattern that the path must fit; its groups tell where a value holds

    def holds(self, version: str) -> bool:
        """Whether a version has this form; a text that is not a version may have any."""
        try:
            base = Version(Version(version).base_version)
        except InvalidVersion:
            return True
        late_enough = not self.since or base >= Version(self.since)
        return late_enough and (not self.until or base < Version(self.until))


@dataclass(frozen=True)
class CiRule:
    """What is known of one dependency in one respect."""

    name: str  #: of the dependency, as in names.yaml
    what: str  #: what the value is to upstream, for people: ``in the builder image``
    forms: tuple[CiForm, ...]  #: the first of those that hold for a version and yield something counts
    packages: tuple[str, ...] = ("pytorch",)  #: those in whose trees the rule holds
    platforms: tuple[str, ...] = ()  #: those for which it holds; empty: all


_MATRIX = ".github/scripts/generate_binary_build_matrix.py"
_PYG_MATRIX = ".github/workflows/utils/full_matrix_linux.json"
_EXTENSION_MATRIX = ".github/workflows/building.yml"
_PYG = ("pyg-lib",)
_EXTENSIONS = ("pytorch_scatter", "pytorch_sparse", "pytorch_cluster", "pytorch_spline_conv")
_SHIPPED = "of the wheels"
_REQUIRED = "required by the wheels"
_IMAGE = "in the builder image"
_BUILT_FOR = "wheels are built for"
_NUMBERS = r"(?P<value>\d+(?:\.\d+)+)"
_LIST = r"\[(?P<value>[^\]]+)\]"


def _wheels(distribution: str) -> tuple[CiForm]:
    """What the wheels require, by CUDA version."""
    read = literal("PYTORCH_EXTRA_INSTALL_REQUIREMENTS", "cuda", requirement=distribution)
    return (CiForm(_MATRIX, read),)


def _in_image(pattern: str) -> tuple[CiForm]:
    """A line in the function that installs one CUDA version, ``install_130``; above all of them it holds for all."""
    read = lines(pattern, under=r"^\s*(?:function\s+)?install_(?P<cuda>\d{3})\b")
    return (CiForm(".ci/docker/common/install_cuda.sh", read),)


_NCCL = CiForm(
    ".ci/docker/ci_commit_pins/nccl*.txt",
    lines(r"^(?P<value>v\d\S*)\s*$"),
    where=r"/nccl(?:-cu(?P<cuda>\d+))?\.txt$",
)
_PYG_CUDA = lines(rf'"cuda-version":\s*{_LIST}', under=r'"torch-version":\s*"(?P<torch_version>[^"]+)"')
PINS = (
    CiRule("cuda", _SHIPPED, (CiForm(_MATRIX, literal("CUDA_ARCHES_FULL_VERSION", "cuda")),)),
    CiRule("cuda", _REQUIRED, _wheels("cuda-toolkit")),
    CiRule("cuda", _IMAGE, _in_image(rf"^\s*install_cuda {_NUMBERS}")),
    CiRule("cudnn", _REQUIRED, _wheels(r"nvidia-cudnn(-cu\d+)?")),
    CiRule("cudnn", _IMAGE, _in_image(rf"^\s*CUDNN_VERSION={_NUMBERS}")),
    CiRule("nccl", _REQUIRED, _wheels(r"nvidia-nccl(-cu\d+)?")),
    CiRule("nccl", "built into the builder image", (_NCCL,)),
    CiRule("triton", _REQUIRED, (CiForm(".ci/docker/triton_version.txt", lines(rf"^{_NUMBERS}\s*$")),)),
    CiRule("python", _BUILT_FOR, (CiForm(_MATRIX, literal("FULL_PYTHON_VERSIONS")),)),
    CiRule("cuda", _SHIPPED, (CiForm(_PYG_MATRIX, _PYG_CUDA),), _PYG),
    CiRule("pytorch", _BUILT_FOR, (CiForm(_PYG_MATRIX, lines(rf'"torch-version":\s*"{_NUMBERS}"')),), _PYG),
    CiRule("python", _BUILT_FOR, (CiForm("pyproject.toml", lines(r'^build = "(?P<value>cp[^"]+)"')),), _PYG),
    *(
        CiRule(name, what, (CiForm(_EXTENSION_MATRIX, lines(rf"^\s+{key}:\s*{_LIST}")),), _EXTENSIONS)
        for name, what, key in (
            ("cuda", _SHIPPED, "cuda-version"),
            ("pytorch", _BUILT_FOR, "torch-version"),
            ("python", _BUILT_FOR, "python-version"),
        )
    ),
)
NAMED = frozenset(rule.name for rule in PINS)

_ARCHS, _ARCH_TABLE = ".ci/manywheel/build_env_setup.py", "TORCH_CUDA_ARCH_LIST_TABLE"
#: The GPU architectures that upstream ships. Up to 2.12 a script computed them: those are not read.
ARCH_LISTS = (
    CiRule(
        "gpu-architectures",
        _SHIPPED,
        (
            CiForm(_ARCHS, literal(_ARCH_TABLE, "cuda", "machine", ptx="_PTX_ARCHES"), until="2.14"),
            CiForm(
                _ARCHS, literal(_ARCH_TABLE, "cuda", "machine"), since="2.14"
            ),  # PTX in nightly builds only
            CiForm(_MATRIX, literal("TORCH_CUDA_ARCH_LIST", "cuda", "machine")),
        ),
    ),
    CiRule(
        "gpu-architectures",
        _SHIPPED,
        (
            CiForm(
                "setup.py",
                lines(
                    "# Set TORCH_CUDA_ARCH_LIST from PyTorch's built architectures",
                    shown="those of the PyTorch it is built against",
                ),
            ),
        ),
        _PYG,
    ),
    CiRule(
        "gpu-architectures",
        _SHIPPED,
        (
            CiForm(
                ".github/workflows/cuda/cu*-Linux-env.sh",
                lines(r'^export TORCH_CUDA_ARCH_LIST="(?P<value>[^"]+)"'),
                where=r"/cu(?P<cuda>11[78]|1[2-9]\d)-",
            ),
        ),
        _EXTENSIONS,
        ("linux-64",),
    ),
)
