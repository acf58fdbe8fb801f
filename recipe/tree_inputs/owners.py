"""The packages that own files of the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .record import Source

_DPKG = "var/lib/dpkg/info"
_CONDA = "conda-meta"


@dataclass(frozen=True, order=True)
class Owner:
    """A package of one of the places."""

    source: Source
    name: str


class Owners:
    """Finds the packages that own files; a link and the file that it leads to may have different ones."""

    def __init__(self, environment: Mapping[str, str], system: Path = Path("/")) -> None:
        """Read the packages' lists of files below $BUILD_PREFIX, $PREFIX and `system`."""
        self._by_path: dict[str, Owner] = {}
        self._read_dpkg(system)
        for source, variable in ((Source.BUILD, "BUILD_PREFIX"), (Source.HOST, "PREFIX")):
            if environment.get(variable):
                self._read_conda(source, environment[variable])

    def of(self, path: str) -> set[Owner]:
        """Return the packages that own a file, or a link to it."""
        folder, name = os.path.split(path)
        places = (path, os.path.join(os.path.realpath(folder), name), os.path.realpath(path))
        owners: set[Owner] = set()
        for place in places:
            owner = self._by_path.get(_unmerged(place))
            if owner is not None:
                owners.add(owner)
        return owners

    def _read_conda(self, source: Source, prefix: str) -> None:
        top = os.path.realpath(prefix)
        for path in Path(prefix, _CONDA).glob("*.json"):
            try:
                document = json.loads(path.read_bytes())
                owner = Owner(source, str(document["name"]))
                files = list(map(str, document["files"]))
            except (OSError, ValueError, KeyError, TypeError):
                continue  # its files have no owner
            for file in files:
                self._by_path[_unmerged(os.path.join(top, file))] = owner

    def _read_dpkg(self, system: Path) -> None:
        for path in (system / _DPKG).glob("*.list"):
            owner = Owner(Source.SYSTEM, path.stem.partition(":")[0])
            try:
                lines = path.read_text(errors="surrogateescape").splitlines()
            except OSError:
                continue
            for line in lines:
                self._by_path[_unmerged(line)] = owner


def _unmerged(path: str) -> str:
    """Return a path as packages name it that were made before /lib became a link to /usr/lib."""
    return path.removeprefix("/usr") if path.startswith(("/usr/lib", "/usr/bin", "/usr/sbin")) else path
