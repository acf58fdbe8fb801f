"""What a measurement is made of: parts of files, files of packages, packages of a subject. Every level adds up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


@dataclass(frozen=True, order=True)
class Part:
    """A kind of content; device code has an architecture, such as ``sm_90``."""

    kind: str
    arch: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.arch}".strip()


GPU_CODE, PTX, LTO_IR = "GPU code", "PTX", "LTO-IR"
CPU_CODE = "CPU code and data"
SYMBOLS = "symbol tables"
DEBUG = "debug information"
PADDING = "empty space in libraries"
STATIC = "static libraries"
OTHER_LIBRARIES = "other libraries"
UNREAD_LIBRARIES = "libraries, not looked into"
HEADERS = "headers"
TESTS = "tests"
PYTHON = "Python"
BYTE_CODE = "byte code"
DOCUMENTATION = "documentation"
METADATA = "package metadata"
OTHER = "other files"
UNKNOWN = "not attributed"

#: Every kind, in the order in which colours are given to them.
KINDS = (
    GPU_CODE, PTX, LTO_IR, CPU_CODE, SYMBOLS, DEBUG, PADDING, STATIC, OTHER_LIBRARIES, UNREAD_LIBRARIES, HEADERS, TESTS,
    PYTHON, BYTE_CODE, DOCUMENTATION, METADATA, OTHER, UNKNOWN,
)  # fmt: skip

#: A package's name for files that belong to none.
NO_PACKAGE = "(no package)"


@dataclass(frozen=True, kw_only=True)
class File:
    """A file: its path in the subject, and its bytes by part."""

    path: str
    parts: Mapping[Part, int]

    @property
    def size(self) -> int:
        """Its bytes."""
        return sum(self.parts.values())


@dataclass(frozen=True, kw_only=True)
class Package:
    """A distribution or conda package.

    Parameters
    ----------
    name, version:
        As its metadata give them, the name in canonical form.
    files:
        What it installs; hard links count once, symbolic links nothing.
    download:
        Bytes of the archive that it comes in, or None where nothing tells.
    required_by:
        Names of packages of the same subject.
    """

    name: str
    version: str = ""
    files: tuple[File, ...] = ()
    download: int | None = None
    required_by: tuple[str, ...] = ()

    @cached_property
    def parts(self) -> Mapping[Part, int]:
        """Bytes by part."""
        return _sum(file.parts for file in self.files)

    @cached_property
    def installed(self) -> int:
        """Bytes of its files."""
        return sum(self.parts.values())


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """A measured subject.

    Parameters
    ----------
    subject, kind:
        Its name, and what it is: ``environment``, ``wheel``, ``package``, ``channel``, ``requirement``.
    packages:
        The largest first.
    fetched:
        Bytes that came over the network for this.
    remarks:
        Sentences about what could not be read.
    """

    subject: str
    kind: str
    packages: tuple[Package, ...]
    fetched: int = 0
    remarks: tuple[str, ...] = field(default=())

    @cached_property
    def parts(self) -> Mapping[Part, int]:
        """Bytes by part."""
        return _sum(package.parts for package in self.packages)

    @property
    def installed(self) -> int:
        """Bytes of all files."""
        return sum(self.parts.values())

    @property
    def download(self) -> int | None:
        """Bytes of all archives, as far as they are known; None where none is."""
        known = [package.download for package in self.packages if package.download is not None]
        return sum(known) if known else None

    @property
    def unattributed(self) -> int:
        """Bytes of which nothing tells whose or what they are: no package, or not understood."""
        strangers = sum(package.installed for package in self.packages if package.name == NO_PACKAGE)
        known = (package for package in self.packages if package.name != NO_PACKAGE)
        return strangers + sum(package.parts.get(Part(UNKNOWN), 0) for package in known)

    def to_json(self) -> dict[str, Any]:
        """Return this as JSON values; files of several parts one by one."""
        return {
            "subject": self.subject,
            "kind": self.kind,
            "installed": self.installed,
            "download": self.download,
            "fetched": self.fetched,
            "not_attributed": self.unattributed,
            "parts": _parts_json(self.parts),
            "packages": [
                {
                    "name": package.name,
                    "version": package.version,
                    "installed": package.installed,
                    "download": package.download,
                    "required_by": list(package.required_by),
                    "parts": _parts_json(package.parts),
                    "libraries": [
                        {"path": file.path, "installed": file.size, "parts": _parts_json(file.parts)}
                        for file in sorted(package.files, key=lambda file: (-file.size, file.path))
                        if len(file.parts) > 1
                    ],
                }
                for package in self.packages
            ],
            "remarks": list(self.remarks),
        }


def largest_first(packages: Iterable[Package]) -> tuple[Package, ...]:
    """Sort packages by what they install."""
    return tuple(sorted(packages, key=lambda package: (-package.installed, package.name, package.version)))


def in_order(parts: Mapping[Part, int]) -> list[tuple[Part, int]]:
    """Sort parts by their bytes, the largest first."""
    return sorted(parts.items(), key=lambda item: (-item[1], item[0]))


def _sum(all_parts: Iterable[Mapping[Part, int]]) -> Mapping[Part, int]:
    total: Counter[Part] = Counter()
    for parts in all_parts:
        total.update(parts)
    return total


def _parts_json(parts: Mapping[Part, int]) -> list[dict[str, Any]]:
    return [{"kind": part.kind, "arch": part.arch, "bytes": size} for part, size in in_order(parts)]
