"""What a subject is compared with."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from megabuild.arch_list import cuda_archs
from megabuild.errors import UsageError

_ACCELERATOR = re.compile(r"cpu|cuda(\d+)(\d)")


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What the libraries of a subject should be."""

    accelerator: str  #: ``cpu`` or ``cuda130``; an empty string for what is not known.
    #: CUDA architectures as in ``TORCH_CUDA_ARCH_LIST``: ``9.0``, ``12.0+PTX``; none: any will do.
    archs: tuple[str, ...] = ()
    python: str | None = None  #: ``3.12``; None for any, or for a module of the stable ABI.
    torch_version: str | None = None  #: ``2.13.0``; None for any.
    #: Each architecture must be there itself; otherwise something that such a GPU can run is enough.
    exact_archs: bool = True

    def __post_init__(self) -> None:
        if self.accelerator and not _ACCELERATOR.fullmatch(self.accelerator):
            raise UsageError(
                f"{self.accelerator} is no accelerator", "give cpu, or cuda and a version: cuda130"
            )
        cuda_archs(";".join(self.archs))

    @property
    def cuda(self) -> bool | None:
        """For CUDA, or for CPU; None where that is not known."""
        return self.accelerator != "cpu" if self.accelerator else None

    @property
    def cuda_version(self) -> str | None:
        """``13.0`` for ``cuda130``."""
        found = _ACCELERATOR.fullmatch(self.accelerator)
        return f"{found[1]}.{found[2]}" if found and found[1] else None

    def filled(self, other: Expectation) -> Expectation:
        """Return this, with what is open taken from another one."""
        return replace(
            self,
            accelerator=self.accelerator or other.accelerator,
            archs=self.archs or other.archs,
            exact_archs=self.exact_archs if self.archs else other.exact_archs,
            python=self.python or other.python,
            torch_version=self.torch_version or other.torch_version,
        )
