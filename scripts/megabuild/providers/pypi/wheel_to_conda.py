"""Turn locked wheels into conda packages, with dependencies that the solver checks."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.utils import parse_wheel_filename

from groundwork.damage import reading
from groundwork.zip_archive import open_zip, read_member
from megabuild.providers.catalogue import Catalogue
from megabuild.providers.local.package import LocalPackage, alias
from megabuild.providers.pypi import unpack
from megabuild.providers.pypi.lock import Lock, Wheel, wheels_of
from megabuild.providers.specs import conda_version

#: Describes a package made from a wheel; takes the fields that differ between the packages of one wheel.
_Described = Callable[..., LocalPackage]


def packages(locks: Sequence[Lock], folder: Path, catalogue: Catalogue, platform: str) -> list[LocalPackage]:
    """Describe one package for each wheel, or one for each Python if the packages would differ.

    ``locks`` has one lock for each Python; ``folder`` has their wheels.
    """
    described: list[LocalPackage] = []
    for wheel in sorted(wheels_of(locks), key=lambda wheel: wheel.sha256):
        path, users = wheel.path(folder), [lock for lock in locks if wheel in lock.wheels]
        needs = {lock.python: _depends(wheel, lock, catalogue) for lock in users}
        tags = parse_wheel_filename(wheel.file_name)[3]
        made = partial(
            LocalPackage,
            version=wheel.version,
            platform=platform,
            inputs={"wheel": wheel.sha256},
            size=wheel.size,
        )
        if catalogue.conda_name(wheel.name) in catalogue.tools:
            summary = f"The program from PyPI's {wheel.file_name}"
            described.append(made(name=wheel.name.lower(), fill=partial(unpack.tool, path), summary=summary))
        elif len(set(needs.values())) == 1 and all(
            (tag.abi, tag.platform) == ("none", "any") for tag in tags
        ):
            described += _library(made, wheel, "", next(iter(needs.values())), path, catalogue)
        else:
            for python, depends in needs.items():
                described += _library(made, wheel, python, depends, path, catalogue)
    return described


def other_names(
    described: Sequence[LocalPackage], asked: Iterable[str], catalogue: Catalogue, platform: str
) -> list[LocalPackage]:
    """Describe an empty package for each requested name that is a second name of a described package."""
    mains = {name: catalogue.conda_name(catalogue.pypi_name(name)) for name in asked}
    versions = dict.fromkeys((package.name, package.version) for package in described)
    return [
        alias(name, main, version, platform)
        for name, main in mains.items()
        for described_name, version in versions
        if name != main == described_name
    ]


def _depends(wheel: Wheel, lock: Lock, catalogue: Catalogue) -> tuple[str, ...]:
    needs = wheel.needs(lock.environment)
    specs = {f"{catalogue.conda_name(need.name)} {conda_version(need.specifier)}".strip() for need in needs}
    return tuple(sorted(specs))


def _library(
    made: _Described, wheel: Wheel, python: str, needs: Sequence[str], path: Path, catalogue: Catalogue
) -> list[LocalPackage]:
    """Describe a wheel's packages for one Python, or for all if ``python`` is empty."""
    name = catalogue.conda_name(wheel.name)
    companions = _pybind11_companions(made, path) if name == "pybind11" else []
    depends = [*needs, *(f"{companion.name} =={companion.version}" for companion in companions)]
    exports = catalogue.wheels[name].run_exports if name in catalogue.wheels else ""
    if python:
        digits, plain = python.replace(".", ""), python.removesuffix("t")
        build, site_packages = f"py{digits}h{{hash}}_0", f"lib/python{python}/site-packages"
        depends += [f"python {plain}.*", f"python_abi {plain}.* *_cp{digits}"]
    else:
        build, site_packages = "pyh{hash}_0", "site-packages"
        depends.append(f"python {conda_version(SpecifierSet(wheel.requires_python))}".strip())
    package = made(
        name=name,
        build=build,
        noarch=None if python else "python",
        depends=tuple(sorted(depends)),
        run_exports={"weak": (exports,)} if exports else {},
        fill=partial(unpack.library, path, site_packages=site_packages),
        summary=f"Python package from PyPI's {wheel.file_name}",
        python=python,
    )
    return [package, *companions]


def _pybind11_companions(made: _Described, path: Path) -> list[LocalPackage]:
    """Describe conda-forge's pybind11-global (headers and CMake files in the prefix) and pybind11-abi."""
    with (
        reading(path, "delete the wheel: the next run downloads it again"),
        open_zip(path) as archive,
    ):
        headers = [name for name in archive.namelist() if re.search(r"detail/(internals|common)\.h$", name)]
        text = "".join(read_member(archive, name).decode() for name in headers)
    # the values differ by compiler and Python; conda-forge's version is the lowest
    abi = min(map(int, re.findall(r"define\s+PYBIND11_INTERNALS_VERSION\s+(\d+)", text)))
    return [
        made(
            name="pybind11-global",
            noarch="generic",
            fill=partial(_fill_pybind11_global, path),
            summary="pybind11's headers and CMake files, for use without Python",
        ),
        made(
            name="pybind11-abi",
            version=str(abi),
            noarch="generic",
            summary="Version of pybind11's internals",
        ),
    ]


def _fill_pybind11_global(wheel: Path, prefix: Path) -> None:
    unpack.library(wheel, prefix / ".wheel", "modules")
    source = prefix / ".wheel" / "modules" / "pybind11"
    for folder in ("include", "share"):
        shutil.copytree(source / folder, prefix / folder)
    shutil.rmtree(prefix / ".wheel")
