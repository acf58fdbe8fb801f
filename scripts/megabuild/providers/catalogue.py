"""The table of where the local channel's packages come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files

import msgspec
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML


@dataclass(frozen=True, kw_only=True)
class PythonWheel:
    """A Python package from PyPI: its name there if it differs, and the weak run_export of packages made from it."""

    pypi: str = ""
    run_exports: str = ""


@dataclass(frozen=True, kw_only=True)
class NvidiaWheel:
    """The packages made from one of NVIDIA's wheels."""

    run: str  #: Package with its libraries, or with everything where there is no `dev`.
    dev: str = ""  #: Package with headers and links for linkers, or empty.
    depends: tuple[str, ...] = ()  #: Further packages that `dev` needs.
    also: tuple[str, ...] = ()  #: Other names for `dev`.


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """catalogue.yaml as data; the fields are described there."""

    wheels: Mapping[str, PythonWheel]
    tools: frozenset[str]
    programs: frozenset[str]
    companions: Mapping[str, str]
    stand_ins: Mapping[str, tuple[str, ...]]
    nvidia: Mapping[str, NvidiaWheel]
    nvidia_toolkit: tuple[str, ...]
    debian_cuda: Mapping[str, tuple[str, ...]]
    debian_cudnn: str

    @cached_property
    def _conda_names(self) -> dict[str, str]:
        return {canonicalize_name(self.pypi_name(conda)): conda for conda in self.wheels}

    def conda_name(self, pypi: str) -> str:
        """Return the conda name of a project on PyPI; names that are not listed are the same on both sides."""
        normal = canonicalize_name(pypi)
        return self._conda_names.get(normal, normal)

    def pypi_name(self, conda: str) -> str:
        """Return the name on PyPI of a conda package."""
        return self.wheels.get(conda, PythonWheel()).pypi or conda

    def with_wheels(self, names: Iterable[str]) -> Catalogue:
        """Return a catalogue in which these, too, are wheels; where two names are one project, these are preferred."""
        return replace(self, wheels={**self.wheels, **{name: PythonWheel() for name in names}})


# before threads convert: msgspec's first look at a class is not safe in several
msgspec.json.Decoder(Catalogue)


def load() -> Catalogue:
    """Read the table beside this module."""
    text = files(__package__).joinpath("catalogue.yaml").read_text()
    return msgspec.convert(YAML(typ="safe").load(text), Catalogue)
