"""The one mapping from upstream's names to conda-forge's: names.yaml, read and asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from ruamel.yaml import YAML

_FILE = Path(__file__).with_name("names.yaml")
_FOLDERS = re.compile(r"(?:^|/)(?:third_party|third-party|external|libs|android/libs|deps|submodules)/")


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row's names; the fields are those of names.yaml, whose head describes them."""

    name: str = ""
    conda: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ()
    ci: tuple[str, ...] = ()
    of: tuple[str, ...] = ("pytorch",)
    keys: tuple[str, ...] = ()
    platform: str = ""
    system: str = ""
    needs: str = ""
    unused: str = ""
    note: str = ""
    follows: str = ""


@dataclass(frozen=True, kw_only=True)
class Names:
    """All entries, found by any of their names."""

    entries: Mapping[str, Entry]
    _conda: Mapping[str, str] = field(repr=False)
    _distributions: Mapping[str, str] = field(repr=False)
    _ci: Mapping[str, str] = field(repr=False)

    def by_conda(self, name: str) -> str:
        """Return the row of a conda package or of a key of conda_build_config.yaml; its own name if there is none."""
        return self._conda.get(plain(name), name)

    def by_distribution(self, name: str) -> str:
        """Return the row of a distribution on PyPI; NVIDIA's ``-cu12`` at the end does not count."""
        word = plain(name)
        short = re.sub(r"_cu\d+$", "", word)
        return self._distributions.get(word) or self._distributions.get(short) or self.by_conda(name)

    def by_ci(self, name: str) -> str:
        """Return the row of a package of ci_rules.py."""
        return self._ci.get(plain(name)) or self.by_conda(name)

    def by_key(self, key: str, platforms: Iterable[str]) -> tuple[str, ...]:
        """Return the rows whose version a key of conda_build_config.yaml is, on any of some platforms (none: all)."""
        where = tuple(platforms)
        return tuple(
            entry.name
            for entry in self.entries.values()
            if key in entry.keys
            and (not where or any(platform.startswith(entry.platform) for platform in where))
        )

    def by_submodule(self, path: str) -> str:
        """Return the row of a submodule: the entry whose pattern fits, else the path without ``third_party/``."""
        for entry in self.entries.values():
            if any(fnmatchcase(path, pattern) for pattern in entry.submodules):
                return entry.name
        return _FOLDERS.sub(lambda found: "/" if found[0].startswith("/") else "", path)

    def wanted(self, package: str, recipe: Iterable[str]) -> tuple[str, ...]:
        """Return the conda packages whose global pin and newest version a package's table shows.

        Parameters
        ----------
        package:
            What is audited.
        recipe:
            Names that its recipe asks for.
        """
        rows = {self.by_conda(name) for name in recipe}
        rows |= {entry.name for entry in self.entries.values() if package in entry.of}
        found = set()
        for row in rows:
            entry = self.entries.get(row)
            found.add(row) if entry is None else found.update(entry.conda[:1])
        return tuple(sorted(found))

    def switches(self) -> frozenset[str]:
        """Return the names of all switches that decide between vendored and system."""
        texts = (text for entry in self.entries.values() for text in (entry.system, entry.needs))
        return frozenset(text.partition("=")[0] for text in texts if text)


def plain(name: str) -> str:
    """Return a name in the spelling in which names are compared: ``typing-extensions`` as ``typing_extensions``."""
    return re.sub(r"[-_.]+", "_", name.strip().lower())


@cache
def names() -> Names:
    """Return what names.yaml says."""
    return parse(_FILE.read_text(encoding="utf-8"))


def parse(text: str) -> Names:
    """Read a mapping.

    Raises
    ------
    ValueError
        A name stands twice, or a field is unknown or of another kind: a mistake in the file, found by the tests.
    """
    document = YAML(typ="safe", pure=True).load(text) or {}
    entries = {
        name: msgspec.convert({"conda": [name], **fields, "name": name}, Entry)
        for name, fields in msgspec.convert(document, dict[str, dict[str, Any]]).items()
    }
    for entry in entries.values():
        if entry.follows and entry.follows not in entries:
            raise ValueError(f"{entry.name}: it follows {entry.follows}, which is no row")
    return Names(
        entries=entries,
        _conda=_index(entries, lambda entry: (entry.name, *entry.conda)),
        _distributions=_index(entries, lambda entry: entry.distributions),
        _ci=_index(entries, lambda entry: entry.ci),
    )


def _index(entries: Mapping[str, Entry], called: Callable[[Entry], Iterable[str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in entries.values():
        for name in called(entry):
            other = found.setdefault(plain(name), entry.name)
            if other != entry.name:
                raise ValueError(f"{name} is named by {other} and by {entry.name}")
    return found
