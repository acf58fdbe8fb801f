"""What a subject is compared with, and what comes out: per library, and for the whole."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from groundwork.errors import UsageError
from groundwork.names import cuda_archs

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
                f"{self.accelerator} is not an accelerator", "give cpu, or cuda and a version: cuda130"
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


@dataclass(frozen=True, kw_only=True)
class LibraryVerdict:
    """One library."""

    #: Its path in the subject, and the Python module that it belongs to.
    path: str
    module: str
    #: Device code in it: ``sm_90``; ``compute_120``.
    archs: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()  #: What it links to.
    #: What it was built against, as far as the library or the metadata beside it tell; None where they do not.
    torch: str | None = None
    cuda: str | None = None
    python: str | None = None
    #: It uses torch by its stable ABI only: it runs with that torch and every later one.
    stable_abi: bool = False
    #: Whether it is what it should be; if not, why not and what to do. With ``ok``, a reason is a remark.
    ok: bool = True
    #: Not ``ok`` for no other reason than that a question cannot be answered, which is the reason.
    unknown: bool = False
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A whole subject: a package, a wheel or an environment."""

    subject: str
    libraries: tuple[LibraryVerdict, ...]
    notes: tuple[str, ...] = ()  #: Remarks on the whole.

    @property
    def ok(self) -> bool:
        """Whether something was judged, and all of it is what it should be."""
        return bool(self.libraries) and all(library.ok for library in self.libraries)

    @property
    def unknown(self) -> bool:
        """Whether nothing is wrong as far as can be told, but a question cannot be answered."""
        wrong = any(not (library.ok or library.unknown) for library in self.libraries)
        return not wrong and any(library.unknown for library in self.libraries)

    def to_json(self) -> dict[str, Any]:
        """Return this as JSON values."""
        return {
            "subject": self.subject,
            "ok": self.ok,
            "unknown": self.unknown,
            "notes": list(self.notes),
            "libraries": [asdict(library) for library in self.libraries],
        }
