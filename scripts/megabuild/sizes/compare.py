"""Two subjects side by side: what each package and each part takes in one and in the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from megabuild.sizes.tree import Sizes


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Installed bytes of a package or part (``what``) in both subjects; 0 where one lacks it."""

    what: str
    name: str
    first: int
    second: int

    @property
    def change(self) -> int:
        """Bytes that the second has more."""
        return self.second - self.first

    def to_json(self) -> dict[str, Any]:
        """Return this as JSON values."""
        return {**asdict(self), "difference": self.change}


def differences(first: Sizes, second: Sizes) -> tuple[Difference, ...]:
    """Return every package, then every part, of two subjects; the largest change first."""
    found: list[Difference] = []
    for what, one, other in (
        ("package", _by_package(first), _by_package(second)),
        ("part", _by_part(first), _by_part(second)),
    ):
        rows = [
            Difference(what=what, name=name, first=one[name], second=other[name])
            for name in one.keys() | other.keys()
        ]
        found += sorted(rows, key=lambda row: (-abs(row.change), -row.first, row.name))
    return tuple(found)


def _by_package(subject: Sizes) -> Counter[str]:
    total: Counter[str] = Counter()
    for package in subject.packages:
        total[package.name] += package.installed
    return total


def _by_part(subject: Sizes) -> Counter[str]:
    return Counter({str(part): octets for part, octets in subject.parts.items()})
