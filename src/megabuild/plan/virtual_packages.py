"""The virtual packages of a platform: facts on the machine that an environment is for, such as ``__glibc``.

An environment for another platform than this machine's must not get this machine's facts: the solver would find no
package for macOS, or one for this machine's processor.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from rattler import GenericVirtualPackage, PackageName, Version, VirtualPackage
from rattler.package import BuildString
from rattler.virtual_package.virtual_package import Override, VirtualPackageOverrides

from groundwork.machine import machine_platform

#: The virtual packages of each system, with the versions on conda-forge's CI: conda-smithy's runners have macOS 15
#: (conda-forge/conda-smithy#2379), its oldest image of Linux glibc 2.28.
_OF_SYSTEMS: dict[str, dict[str, str]] = {
    "linux": {"__unix": "0", "__linux": "0", "__glibc": "2.28"},
    "osx": {"__unix": "0", "__osx": "15.0"},
    "win": {"__win": "0"},
}
#: Begins the variables by which a user gives versions to virtual packages.
OVERRIDE = "CONDA_OVERRIDE_"
_ARCHSPEC = "__archspec"
_CUDA = "__cuda"
#: Systems with drivers of NVIDIA.
_WITH_CUDA = ("linux", "win")
#: The oldest processor of each platform, by archspec's name, as the engine takes it.
_PROCESSORS = {
    "linux-64": "x86_64",
    "linux-aarch64": "aarch64",
    "linux-ppc64le": "ppc64le",
    "linux-riscv64": "riscv64",
    "linux-s390x": "s390x",
    "osx-64": "x86_64",
    "osx-arm64": "m1",
    "win-64": "x86_64",
    "win-arm64": "aarch64",
}


def find_virtual_packages(platform: str, given: Mapping[str, str]) -> list[GenericVirtualPackage]:
    """Return the virtual packages of a platform.

    ``given`` versions replace all others, ``CONDA_OVERRIDE_*`` those of this machine. Facts on this machine's system
    hold for the same system on another processor; its processor holds for its own platform only.
    """
    detected: dict[str, GenericVirtualPackage] = {}
    for package in VirtualPackage.detect(_overrides(given)):
        generic = package.into_generic()
        detected[generic.name.source] = generic
    if platform == machine_platform():
        return list(detected.values())
    system = platform.partition("-")[0]
    found: list[GenericVirtualPackage] = []
    for name, on_ci in _OF_SYSTEMS.get(system, {}).items():
        version = _requested(name, given)
        if version is None:
            found.append(detected.get(name) or _package(name, on_ci))
        elif version:
            found.append(_package(name, version))
    cuda = _requested(_CUDA, given)
    if cuda and system in _WITH_CUDA:
        found.append(_package(_CUDA, cuda))
    processor = _PROCESSORS.get(platform)
    # the variable names a processor of this machine; empty, it says that no platform is to have that package
    if processor and os.environ.get(override_variable(_ARCHSPEC)) != "":
        found.append(_package(_ARCHSPEC, "1", processor))
    return found


def override_variable(name: str) -> str:
    """Return the variable that gives a virtual package its version, such as CONDA_OVERRIDE_GLIBC."""
    return f"{OVERRIDE}{name.removeprefix('__').upper()}"


def _overrides(given: Mapping[str, str]) -> VirtualPackageOverrides:
    overrides = VirtualPackageOverrides.from_env()
    if "__glibc" in given:
        overrides.libc = Override.string(given["__glibc"])
    if _CUDA in given:
        overrides.cuda = Override.string(given[_CUDA])
    return overrides


def _requested(name: str, given: Mapping[str, str]) -> str | None:
    """Return the version that a caller or the user's environment gives to a virtual package, or None.

    An empty one means that there is no such package, as for conda.
    """
    return given.get(name, os.environ.get(override_variable(name)))


def _package(name: str, version: str, build: str = "0") -> GenericVirtualPackage:
    return GenericVirtualPackage(PackageName(name), Version(version), BuildString(build))
