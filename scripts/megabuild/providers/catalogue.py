"""The table that says where the local channel takes a package from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

from packaging.utils import canonicalize_name
from ruamel.yaml import YAML


@dataclass(frozen=True, kw_only=True)
class NvidiaWheel:
    """What becomes of one of NVIDIA's wheels.

    Parameters
    ----------
    run:
        Package with its libraries, or with everything where there is no `dev`.
    dev:
        Package with headers and links for linkers, or empty.
    depends:
        Further packages that `dev` needs.
    also:
        Other names for `dev`.
    """

    run: str
    dev: str = ""
    depends: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """catalogue.yaml as data.

    Parameters
    ----------
    wheels:
        conda name to PyPI name.
    run_exports:
        conda name to the weak run_export of packages made from wheels.
    tools:
        Names (the same on both sides) of programs that come as wheels.
    programs:
        Programs of the system.
    companions:
        Packages split off another one, to the name of that one.
    stand_ins:
        Stand-ins to the further stand-ins they need.
    nvidia:
        PyPI name of NVIDIA's wheels to the packages made from them.
    nvidia_toolkit:
        Parts of the CUDA toolkit that building needs.
    debian_cuda:
        Package with libraries to its development package and the Debian packages that it is made from.
    debian_cudnn:
        Requirement for pip: the cuDNN that goes with them.
    """

    wheels: Mapping[str, str]
    run_exports: Mapping[str, str]
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
        return {canonicalize_name(pypi): conda for conda, pypi in self.wheels.items()}

    def conda_name(self, pypi: str) -> str:
        """The conda name of a project on PyPI; names that are not listed are the same on both sides."""
        normal = canonicalize_name(pypi)
        return self._conda_names.get(normal, normal)


def load() -> Catalogue:
    """Read the table that lies beside this module."""
    data: dict[str, Any] = YAML(typ="safe").load(files(__package__).joinpath("catalogue.yaml").read_text())
    wheels: dict[str, dict[str, str]] = data["wheels"]
    return Catalogue(
        wheels={conda: entry.get("pypi", conda) for conda, entry in wheels.items()},
        run_exports={
            conda: entry["run_exports"] for conda, entry in wheels.items() if "run_exports" in entry
        },
        tools=frozenset(data["tools"]),
        programs=frozenset(data["programs"]),
        companions=data["companions"],
        stand_ins={name: tuple(others) for name, others in data["stand_ins"].items()},
        nvidia={
            name: NvidiaWheel(
                run=entry["run"],
                dev=entry.get("dev", ""),
                depends=tuple(entry.get("depends", ())),
                also=tuple(entry.get("also", ())),
            )
            for name, entry in data["nvidia"].items()
        },
        nvidia_toolkit=tuple(data["nvidia_toolkit"]),
        debian_cuda={name: tuple(rest) for name, rest in data["debian_cuda"].items()},
        debian_cudnn=data["debian_cudnn"],
    )
