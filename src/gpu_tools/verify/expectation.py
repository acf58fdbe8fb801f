"""The expectation for a module's libraries: from the user's request, the torch they must fit, and their metadata."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cuda_code.judge import Wanted
from cuda_code.library_facts import STABLE_ABI
from gpu_tools.verify.build_target import CPU, BuildTarget
from gpu_tools.verify.installed_torch import InstalledTorch
from groundwork.errors import UsageError

#: The libraries that represent torch's two parts: a fault of a part is reported for its library.
LIBTORCH = "libtorch_cpu.so"
TORCH_PARTS = frozenset({LIBTORCH, "libtorch_python.so"})
_ACCELERATOR = re.compile(r"cpu|cuda(\d+)(\d)")


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """The expected properties of a subject's libraries."""

    accelerator: str = ""  #: ``cpu`` or ``cuda130``; empty if unknown.
    #: CUDA architectures as in ``TORCH_CUDA_ARCH_LIST``: ``9.0``, ``12.0+PTX``; empty: any.
    archs: tuple[str, ...] = ()
    python: str | None = None  #: ``3.12``; None: any, or a module with the stable ABI.
    torch_version: str | None = None  #: ``2.13.0``; None: any.
    #: Require machine code for each architecture; otherwise any code that such a GPU can run is enough.
    exact_archs: bool = True

    def __post_init__(self) -> None:
        if self.accelerator and not _ACCELERATOR.fullmatch(self.accelerator):
            raise UsageError(
                f"{self.accelerator}: unknown accelerator",
                "pass cpu, or cuda with a version, such as cuda130",
            )

    @property
    def cuda(self) -> bool | None:
        """True for CUDA, False for CPU, None if unknown."""
        if not self.accelerator:
            return None
        return self.accelerator != CPU

    @property
    def cuda_version(self) -> str | None:
        """``13.0`` for ``cuda130``."""
        match = _ACCELERATOR.fullmatch(self.accelerator)
        if match is None or not match[1]:
            return None
        return f"{match[1]}.{match[2]}"

    def filled(self, other: Expectation) -> Expectation:
        """Return a copy with unset values taken from ``other``."""
        return Expectation(
            accelerator=self.accelerator or other.accelerator,
            archs=self.archs or other.archs,
            exact_archs=self.exact_archs if self.archs else other.exact_archs,
            python=self.python or other.python,
            torch_version=self.torch_version or other.torch_version,
        )


@dataclass(frozen=True, kw_only=True)
class ModuleContext:
    """The data to compare one module's libraries with."""

    name: str
    names: frozenset[str]  #: File names of all its libraries.
    asked: Expectation  #: The user's request.
    expected: Expectation  #: The request, filled from the torch that the module must fit.
    torch: InstalledTorch | None  #: The torch that the module must fit.
    target: BuildTarget  #: The build target in the metadata.
    python: str | None = None  #: The Python of the examined environment.
    machine: str = ""  #: The environment's processor: ``x86_64``.
    #: An environment's module that links to torch and that :data:`KERNELS` does not list.
    only_uses_torch: bool = False
    #: Some library of the package, of no module in :data:`KERNELS`, has device code.
    package_has_code: bool = False

    @property
    def wants_cuda(self) -> bool | None:
        """Whether the user asked for CUDA; asking for an architecture implies it. None if not asked."""
        if self.asked.archs:
            return True
        return self.asked.cuda

    @property
    def expects_cuda(self) -> bool | None:
        """Whether a CUDA build is expected: by the user, else for the torch, else by the metadata. None if unknown."""
        if self.wants_cuda is not None:
            return self.wants_cuda
        if self.expected.cuda is not None:
            return self.expected.cuda
        if self.target.cuda is not None:
            return self.target.cuda != CPU
        return None

    @property
    def wanted(self) -> Wanted:
        """The expectation for each library, for :mod:`cuda_code.judge`."""
        expected = self.expected
        cuda = self.expects_cuda
        cuda_major = None
        cuda_version = expected.cuda_version or self.target.cuda_version
        if cuda_version:
            cuda_major = int(cuda_version.split(".")[0])
        python = None
        if self.target.python != STABLE_ABI:
            python = expected.python or self.target.python
        return Wanted(
            cuda=cuda,
            cuda_major=cuda_major,
            archs=() if cuda is False else expected.archs,
            exact=expected.exact_archs,
            required=bool(self.asked.archs),
            python=python,
        )
