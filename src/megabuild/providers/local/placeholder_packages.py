"""Empty stand-ins for packages that this machine cannot provide, for the solver of a rehearsal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from packaging.version import Version
from rattler import MatchSpec

from groundwork.errors import ProviderError
from groundwork.names import PackageId
from megabuild.providers.command import run
from megabuild.providers.local.compilers import Toolchain
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.specs import satisfied

_TAG = "rehearsal"
#: The packages that are not empty.
_HEADERS = "libmagma-devel"
_LIBRARY = "libmagma"

_MAGMA_HEADER = """\
/* Rehearsal stand-in: enough of MAGMA's header for a build to find out its version. */
#ifndef MAGMA_H
#define MAGMA_H
#define MAGMA_VERSION_MAJOR {version.major}
#define MAGMA_VERSION_MINOR {version.minor}
#define MAGMA_VERSION_MICRO {version.micro}
#endif
"""


def packages(
    missing: Mapping[str, Sequence[MatchSpec]],
    companions: Mapping[str, Sequence[str]],
    toolchain: Toolchain,
    platform: str,
) -> list[LocalPackage]:
    """Describe stand-ins for missing packages, so that all their specs are satisfied.

    ``missing`` maps package names to specs; ``companions`` maps them to the packages in their run_exports.

    Raises ProviderError: No version satisfies one of the specs.
    """
    described: list[LocalPackage] = []
    for name, specs in sorted(missing.items()):
        others = companions.get(name, ())
        for example in examples(specs, name, _TAG):
            described.append(_stand_in(example, toolchain, platform, brings=others))
            for other in others:
                if other not in missing:
                    companion = PackageId(other, example.version, _TAG)
                    described.append(_stand_in(companion, toolchain, platform))
    return described


def examples(specs: Sequence[MatchSpec], name: str, tag: str) -> list[PackageId]:
    """Return a few packages of this name and build tag, so that each spec is satisfied by one of them.

    Raises ProviderError: No version satisfies one of the specs.
    """
    groups: list[_Group] = []
    for spec in specs:
        for number, group in enumerate([*groups, _Group()]):  # a group of its own comes last
            together = (*group.specs, spec)
            package = _example(together, name, tag)
            if package is not None:
                groups[number : number + 1] = [_Group(together, package)]
                break
        else:
            raise ProviderError(f"{spec}: no version satisfies this requirement")
    return [group.package for group in groups if group.package]


@dataclass(frozen=True)
class _Group:
    specs: tuple[MatchSpec, ...] = ()
    package: PackageId | None = None  #: satisfies all specs


def _example(specs: Sequence[MatchSpec], name: str, tag: str) -> PackageId | None:
    """Return a package that satisfies all `specs`, or None; `tag` is its build string if any is allowed."""
    literals: set[str] = set()
    for spec in specs:
        for literal in re.findall(r"\d[\w.+!]*", spec.version or ""):
            literals.add(literal.rstrip("."))
    versions: list[str] = []
    for literal in sorted(literals, reverse=True):
        versions += [literal, f"{literal}.0", f"{literal}.1"]
    builds = [(spec.build or "*").replace("*", tag, 1).replace("*", "") for spec in specs]
    for version in [*versions, "0", "1", "9999"]:
        for build in dict.fromkeys([*builds, tag]):
            package = PackageId(name, version, build)
            if satisfied(specs, package):
                return package
    return None


def _stand_in(
    package: PackageId, toolchain: Toolchain, platform: str, brings: Sequence[str] = ()
) -> LocalPackage:
    name, version, build = package
    exports = {"weak": tuple(brings)} if brings else {}
    inputs = {"compiler": toolchain.digest} if name == _LIBRARY else {}
    return LocalPackage(
        name=name,
        version=version,
        build=build,
        platform=platform,
        depends=tuple(brings),
        run_exports=exports,
        inputs=inputs,
        fill=partial(_fill, name, version, toolchain),
        summary=f"rehearsal stand-in for {name}: nothing in it works",
    )


def _fill(name: str, version: str, toolchain: Toolchain, prefix: Path) -> None:
    if name == _HEADERS:
        (prefix / "include").mkdir()
        (prefix / "include" / "magma.h").write_text(_MAGMA_HEADER.format(version=Version(version)))
    if name == _LIBRARY:  # an empty library to link against and to load
        (prefix / "lib").mkdir()
        library = prefix / "lib" / "libmagma.so"
        words = ["-shared", "-fPIC", "-Wl,-soname,libmagma.so", "-o", str(library), "-x", "c", "/dev/null"]
        run([toolchain.cc, *words], what="compiling the stand-in for libmagma")
