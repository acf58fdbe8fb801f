"""The data of a measurement: a subject has packages, a package files, a file parts. Every level adds up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpu_tools.subject_kind import SubjectKind
from groundwork.text import to_dict


class Kind(str, Enum):
    """A kind of content."""

    GPU_CODE = "GPU code"
    PTX = "PTX"
    LTO_IR = "LTO-IR"
    CPU_CODE = "CPU code and data"
    SYMBOLS = "symbol tables"
    DEBUG = "debug information"
    STATIC = "static libraries"
    OTHER_LIBRARIES = "other libraries"
    HEADERS = "headers"
    TESTS = "tests"
    PYTHON = "Python"
    BYTE_CODE = "byte code"
    DOCUMENTATION = "documentation"
    METADATA = "package metadata"
    OTHER = "other files"
    UNKNOWN = "not attributed"


@dataclass(frozen=True, order=True)
class ContentPart:
    """A kind of content; for device code with an architecture such as ``sm_90``."""

    kind: Kind
    arch: str = ""


#: Package name of files that belong to no package.
NO_PACKAGE = "(no package)"
#: Bytes of a file by part.
Parts = Mapping[ContentPart, int]


@dataclass(frozen=True, kw_only=True)
class Package:
    """A distribution or conda package."""

    name: str  #: In canonical form.
    version: str = ""
    files: Mapping[str, Parts]  #: Installed files by path; hard links count once, symbolic links as 0 bytes.
    download: int | None = None  #: Bytes of the package's archive; None if unknown.
    required_by: tuple[str, ...] = ()  #: Names of packages in the same subject.

    @cached_property
    def parts(self) -> Parts:
        """Bytes by part."""
        return _sum(self.files.values())

    @cached_property
    def installed(self) -> int:
        """Bytes of all files."""
        return sum(self.parts.values())

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document; ``libraries`` lists the files that have several parts."""
        composed = {path: parts for path, parts in self.files.items() if len(parts) > 1}
        octets = {path: sum(parts.values()) for path, parts in composed.items()}
        libraries = []
        for path in sorted(composed, key=lambda path: (-octets[path], path)):
            parts = _parts_json(composed[path])
            libraries.append({"path": path, "installed": octets[path], "parts": parts})
        return {
            **to_dict(self, "name version installed download required_by"),
            "parts": _parts_json(self.parts),
            "libraries": libraries,
        }


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """A measured subject."""

    subject: str
    kind: SubjectKind
    packages: tuple[Package, ...]  #: The largest first.
    remarks: tuple[str, ...] = ()  #: Sentences about unreadable files and duplicates.

    @cached_property
    def parts(self) -> Parts:
        """Bytes by part."""
        return _sum(package.parts for package in self.packages)

    @property
    def installed(self) -> int:
        """Bytes of all files."""
        return sum(self.parts.values())

    @property
    def download(self) -> int | None:
        """Bytes of all archives of known size; None if no size is known."""
        downloads = [package.download for package in self.packages if package.download is not None]
        if not downloads:
            return None
        return sum(downloads)

    @property
    def unattributed(self) -> int:
        """Bytes of files that no package owns, and of content of unknown kind."""
        octets = 0
        for package in self.packages:
            if package.name == NO_PACKAGE:
                octets += package.installed
            else:
                octets += package.parts.get(ContentPart(Kind.UNKNOWN), 0)
        return octets

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document."""
        return {
            **to_dict(self, "subject kind installed download"),
            "not_attributed": self.unattributed,
            "parts": _parts_json(self.parts),
            "packages": [package.to_json() for package in self.packages],
            "remarks": list(self.remarks),
        }


def sort_by_size(packages: Iterable[Package]) -> tuple[Package, ...]:
    """Sort packages by installed bytes, the largest first."""
    return tuple(sorted(packages, key=lambda package: (-package.installed, package.name, package.version)))


def find_requirers(
    roots: Iterable[str], requires: Mapping[str, Sequence[str]], python: str
) -> dict[str, set[str]]:
    """Follow requirements and extras; map each required package to the packages that require it.

    ``requires`` has packages' requirements by canonical name. Markers are evaluated for ``python``
    (``3.12``) on this machine. Malformed requirements are skipped.
    """
    requirers: dict[str, set[str]] = {}
    done: set[tuple[str, str]] = set()
    to_do = [(root, "") for root in roots]
    while to_do:
        item = to_do.pop()
        if item in done:
            continue
        done.add(item)
        name, extra = item
        for text in requires.get(name, ()):
            requirement = _parse_requirement(text, python, extra)
            if requirement is not None:
                required = canonicalize_name(requirement.name)
                requirers.setdefault(required, set()).add(name)
                to_do += [(required, name_of_extra) for name_of_extra in ("", *requirement.extras)]
    return requirers


def _parse_requirement(text: str, python: str, extra: str) -> Requirement | None:
    """Return a requirement; None if it is malformed, or its marker does not apply."""
    environment = {"python_version": python, "python_full_version": f"{python}.99", "extra": extra}
    try:
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate(environment):
            return None
    except ValueError:
        return None
    return requirement


def _sum(counts: Iterable[Parts]) -> Counter[ContentPart]:
    total: Counter[ContentPart] = Counter()
    for count in counts:
        total.update(count)
    return total


def _parts_json(parts: Parts) -> list[dict[str, Any]]:
    by_size = sorted(parts.items(), key=lambda item: (-item[1], item[0]))
    return [{"kind": part.kind, "arch": part.arch, "bytes": octets} for part, octets in by_size]
