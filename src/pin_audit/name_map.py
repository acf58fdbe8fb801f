"""The mapping from upstream's names to conda-forge's: name_map.yaml."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import msgspec
from ruamel.yaml import YAML

from pin_audit.facts import resolve_types

_FILE = Path(__file__).with_name("name_map.yaml")
_FOLDERS = re.compile(r"(^|/)(?:third_party|third-party|external|libs|android/libs|deps|submodules)/")


@resolve_types
class Dependency(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row's names; the fields are those of name_map.yaml, whose head describes them."""

    name: str
    conda: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ()
    ci: tuple[str, ...] = ()
    of: tuple[str, ...] = ("pytorch",)
    keys: tuple[str, ...] = ()
    platform: str = ""
    unused: str = ""
    vendored: str = ""
    follows: str = ""
    decided: str = ""
    tool: bool = False
    cuda: bool = False
    numbers: int = 0
    scheme: dict[int, int] = {}

    def counted(self, value: str) -> str:
        """Return a requirement with as many numbers as conda-forge's versions have: ``==13.0.*`` for ``==13.0.3``."""
        if not self.numbers:
            return value
        return re.sub(rf"==\s*(\d+(?:\.\d+){{{self.numbers - 1}}})\.[\d.]+", r"==\1.*", value)

    def release(self, version: str) -> str:
        """Return conda-forge's version of an upstream release: ``3.21.12`` for protobuf's 21.12."""
        first = re.match(r"\d+", version)
        number = int(first[0]) if first else 0
        for since in sorted(self.scheme, reverse=True):
            if since <= number:
                return f"{self.scheme[since]}.{version}"
        return version


class Names:
    """All entries, found by any of their names; a name without an entry is a row of its own."""

    def __init__(self, text: str) -> None:
        document = YAML(typ="safe", pure=True).load(text)
        self.entries: dict[str, Dependency] = {}
        self._rows: dict[str, str] = {}  # by normalized names
        for row, fields in document.items():
            entry = msgspec.convert({"conda": [row], **fields, "name": row}, Dependency)
            self.entries[row] = entry
            for name in (row, *entry.conda, *entry.distributions, *entry.ci):
                self._rows[plain(name)] = row

    def entry(self, row: str) -> Dependency:
        """Return the entry of a row; that of a conda package of the same name if the file has none."""
        return self.entries.get(row) or Dependency(name=row, conda=(row,))

    def by_name(self, name: str) -> str:
        """Return the row of a conda package, a key of conda_build_config.yaml, a distribution or a name of ci_rules.py.

        NVIDIA's suffix ``-cu12`` is ignored.
        """
        word = plain(name)
        return self._rows.get(word) or self._rows.get(re.sub(r"_cu\d+$", "", word), name)

    def by_key(self, key: str, platforms: Collection[str]) -> tuple[str, ...]:
        """Return the rows whose version a key of conda_build_config.yaml sets, on any of `platforms` (empty: all)."""
        rows = []
        for entry in self.entries.values():
            if key in entry.keys and _includes(platforms, entry.platform):
                rows.append(entry.name)
        return tuple(rows)

    def by_submodule(self, path: str) -> str:
        """Return the row of a submodule: the entry with a matching pattern, else the path without ``third_party/``."""
        for entry in self.entries.values():
            if any(fnmatchcase(path, pattern) for pattern in entry.submodules):
                return entry.name
        return _FOLDERS.sub(r"\1", path)

    def wanted(self, package: str, recipe: Iterable[str], *, submodules: bool = False) -> tuple[str, ...]:
        """Return the conda packages whose global pin and newest version a table shows.

        `recipe`: the names that the recipe requires. `submodules`: include packages that any project may vendor.
        """
        rows = {self.by_name(name) for name in recipe}
        for entry in self.entries.values():
            if package in entry.of or (submodules and entry.submodules):
                rows.add(entry.name)
        wanted: set[str] = set()
        for row in rows:
            wanted.update(self.entry(row).conda[:1])
        return tuple(sorted(wanted))


def _includes(platforms: Collection[str], system: str) -> bool:
    """Whether one of `platforms` is of a system; no platforms mean all."""
    return not platforms or any(platform.startswith(system) for platform in platforms)


def plain(name: str) -> str:
    """Normalize a name, to compare it: ``typing-extensions`` becomes ``typing_extensions``."""
    return re.sub(r"[-_.]+", "_", name.strip().lower())


@cache
def names() -> Names:
    return Names(_FILE.read_text(encoding="utf-8"))
