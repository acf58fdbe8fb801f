"""Turn locked wheels into conda packages, with dependencies that the solver checks."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from groundwork.damage import reading
from groundwork.zip_archive import open_zip, read_member
from megabuild.providers.catalogue import Catalogue
from megabuild.providers.local.package import LocalPackage, alias
from megabuild.providers.pypi import unpack
from megabuild.providers.pypi.lock import Lock, Wheel, wheels_of
from megabuild.providers.specs import conda_version

PYBIND11 = "pybind11"


def packages(locks: Sequence[Lock], folder: Path, catalogue: Catalogue, platform: str) -> list[LocalPackage]:
    """Describe one package for each program, and for each library one a Python, since its byte code is for one Python.

    ``locks`` has one lock for each Python; ``folder`` has their wheels.
    """
    described: list[LocalPackage] = []
    for wheel in sorted(wheels_of(locks), key=lambda wheel: wheel.sha256):
        packages_of = _WheelPackages(wheel, wheel.path(folder), catalogue, platform)
        if packages_of.name in catalogue.tools:
            described.append(packages_of.tool())
            continue
        for lock in locks:
            if wheel in lock.wheels:
                described += packages_of.library(lock.python, packages_of.requirements(lock))
    return described


def other_names(
    described: Sequence[LocalPackage], asked: Iterable[str], catalogue: Catalogue, platform: str
) -> list[LocalPackage]:
    """Describe an empty package for each requested name that is a second name of a described package."""
    versions: dict[str, dict[str, None]] = {}
    for package in described:
        versions.setdefault(package.name, {})[package.version] = None
    aliases: list[LocalPackage] = []
    for name in asked:
        main = catalogue.conda_name(catalogue.pypi_name(name))
        if name == main:
            continue
        for version in versions.get(main, ()):
            aliases.append(alias(name, main, version, platform))
    return aliases


@dataclass(frozen=True)
class _WheelPackages:
    """The packages made from one wheel."""

    wheel: Wheel
    path: Path
    catalogue: Catalogue
    platform: str

    @property
    def name(self) -> str:
        return self.catalogue.conda_name(self.wheel.name)

    def requirements(self, lock: Lock) -> tuple[str, ...]:
        """Return what the package requires for a lock's Python."""
        specs: set[str] = set()
        for need in self.wheel.needs(lock.environment):
            name = self.catalogue.conda_name(need.name)
            specs.add(f"{name} {conda_version(need.specifier)}".strip())
        return tuple(sorted(specs))

    def tool(self) -> LocalPackage:
        """Describe the package of a program."""
        return replace(
            self._package(self.wheel.name.lower()),
            fill=partial(unpack.tool, self.path),
            summary=f"The program from PyPI's {self.wheel.file_name}",
        )

    def library(self, python: str, needs: Sequence[str]) -> list[LocalPackage]:
        """Describe the packages for one Python."""
        companions: list[LocalPackage] = []
        if self.name == PYBIND11:
            companions = self._pybind11_companions()
        digits = python.replace(".", "")
        plain = python.removesuffix("t")
        depends = [*needs, *(f"{companion.name} =={companion.version}" for companion in companions)]
        depends += [f"python {plain}.*", f"python_abi {plain}.* *_cp{digits}"]
        package = replace(
            self._package(self.name),
            build=f"py{digits}h{{hash}}_0",
            depends=tuple(sorted(depends)),
            run_exports=self._run_exports(),
            fill=partial(unpack.library, self.path, site_packages=f"lib/python{python}/site-packages"),
            summary=f"Python package from PyPI's {self.wheel.file_name}",
            python=python,
        )
        return [package, *companions]

    def _run_exports(self) -> dict[str, tuple[str, ...]]:
        entry = self.catalogue.wheels.get(self.name)
        if entry is None or not entry.run_exports:
            return {}
        return {"weak": (entry.run_exports,)}

    def _package(self, name: str) -> LocalPackage:
        return LocalPackage(
            name=name,
            version=self.wheel.version,
            platform=self.platform,
            inputs={"wheel": self.wheel.sha256},
            size=self.wheel.size,
        )

    def _pybind11_companions(self) -> list[LocalPackage]:
        """Describe conda-forge's pybind11-global (headers and CMake files in the prefix) and pybind11-abi."""
        headers = replace(
            self._package("pybind11-global"),
            noarch="generic",
            fill=partial(_fill_pybind11_global, self.path),
            summary="pybind11's headers and CMake files, for use without Python",
        )
        abi = replace(
            self._package("pybind11-abi"),
            version=_pybind11_abi(self.path),
            noarch="generic",
            summary="Version of pybind11's internals",
        )
        return [headers, abi]


def _pybind11_abi(wheel: Path) -> str:
    """Return the lowest version of its internals, as conda-forge does: it differs by compiler and Python."""
    versions: list[int] = []
    with (
        reading(wheel, "delete the wheel: the next run downloads it again"),
        open_zip(wheel) as archive,
    ):
        for name in archive.namelist():
            if re.search(r"detail/(internals|common)\.h$", name):
                text = read_member(archive, name).decode()
                versions += map(int, re.findall(r"define\s+PYBIND11_INTERNALS_VERSION\s+(\d+)", text))
    return str(min(versions))


def _fill_pybind11_global(wheel: Path, prefix: Path) -> None:
    unpack.library(wheel, prefix / ".wheel", "modules")
    source = prefix / ".wheel" / "modules" / "pybind11"
    for folder in ("include", "share"):
        shutil.copytree(source / folder, prefix / folder)
    shutil.rmtree(prefix / ".wheel")
