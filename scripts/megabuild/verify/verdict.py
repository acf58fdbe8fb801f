"""What came out, per library and for the whole subject."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


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

    @property
    def ok(self) -> bool:
        """Whether there is something to judge, and all of it is what it should be."""
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
            "libraries": [asdict(library) for library in self.libraries],
        }
