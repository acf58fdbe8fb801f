"""catalogue.yaml: the source of each package of the local channel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files

import msgspec
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML


@dataclass(frozen=True, kw_only=True)
class PythonWheel:
    """A Python package from PyPI."""

    pypi: str = ""  #: Name on PyPI; empty if it is the conda name.
    run_exports: str = ""  #: Weak run_export of the conda package.


@dataclass(frozen=True, kw_only=True)
class NvidiaWheel:
    """The conda packages made from one NVIDIA wheel."""

    run: str  #: Package with the libraries, or with all files if `dev` is empty.
    dev: str = ""  #: Package with headers and linker symlinks, or empty.
    depends: tuple[str, ...] = ()  #: Further dependencies of `dev`.
    also: tuple[str, ...] = ()  #: Other names for `dev`.


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """The content of catalogue.yaml, whose comments describe the fields."""

    wheels: Mapping[str, PythonWheel]
    tools: frozenset[str]
    programs: frozenset[str]
    companions: Mapping[str, str]
    stand_ins: Mapping[str, tuple[str, ...]]
    only_in_builds: frozenset[str]
    nvidia: Mapping[str, NvidiaWheel]
    nvidia_toolkit: tuple[str, ...]
    debian_cuda: Mapping[str, tuple[str, ...]]
    debian_cudnn: str

    def conda_name(self, pypi: str) -> str:
        """Return the conda name of a PyPI project: the same name, unless catalogue.yaml lists another."""
        normal = canonicalize_name(pypi)
        # of several conda names of a project, the last one: `with_wheels` adds at the end
        for conda in reversed(tuple(self.wheels)):
            if canonicalize_name(self.pypi_name(conda)) == normal:
                return conda
        return normal

    def pypi_name(self, conda: str) -> str:
        """Return the PyPI name of a conda package."""
        return self.wheels.get(conda, PythonWheel()).pypi or conda

    def with_wheels(self, names: Iterable[str]) -> Catalogue:
        """Return a copy that lists `names` as wheels, too; they win if two conda names share a PyPI project."""
        return replace(self, wheels={**self.wheels, **dict.fromkeys(names, PythonWheel())})

    def of_rehearsal(self) -> Catalogue:
        """Return a copy without the wheels that a rehearsal replaces by stand-ins."""
        kept = {name: wheel for name, wheel in self.wheels.items() if name not in self.only_in_builds}
        return replace(self, wheels=kept)


# msgspec's first inspection of a class is not thread-safe, and threads call `load`
msgspec.json.Decoder(Catalogue)


def load() -> Catalogue:
    """Read the catalogue.yaml next to this module."""
    text = files(__package__).joinpath("catalogue.yaml").read_text()
    return msgspec.convert(YAML(typ="safe").load(text), Catalogue)
