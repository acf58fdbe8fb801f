"""Empty stand-ins for packages that this machine cannot provide, for the solver of a rehearsal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
            more = (PackageId(other, example.version, _TAG) for other in others if other not in missing)
            described += [_stand_in(other, toolchain, platform) for other in more]
    return described


def examples(specs: Sequence[MatchSpec], name: str, tag: str) -> list[PackageId]:
    """Return a few packages of this name and build tag, so that each spec is satisfied by one of them.

    Raises ProviderError: No version satisfies one of the specs.
    """
    groups, packages = list[list[MatchSpec]](), list[PackageId]()
    for spec in specs:
        for number, group in enumerate([*groups, []]):  # a group of its own comes last
            if package := _example([*group, spec], name, tag):
                groups[number : number + 1] = [[*group, spec]]
                packages[number : number + 1] = [package]
                break
        else:
            raise ProviderError(f"{spec}: no version satisfies this requirement")
    return packages


def _example(specs: Sequence[MatchSpec], name: str, tag: str) -> PackageId | None:
    """Return a package that satisfies all `specs`, or None; `tag` is its build string if any is allowed."""
    literals = [text for spec in specs for text in re.findall(r"\d[\w.+!]*", spec.version or "")]
    versions = [
        candidate
        for literal in sorted({text.rstrip(".") for text in literals}, reverse=True)
        for candidate in (literal, literal + ".0", literal + ".1")
    ]
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
    return LocalPackage(
        name=name,
        version=version,
        build=build,
        platform=platform,
        depends=tuple(brings),
        run_exports={"weak": tuple(brings)} if brings else {},
        inputs={"compiler": toolchain.digest} if name == "libmagma" else {},
        fill=partial(_fill, name, version, toolchain),
        summary=f"rehearsal stand-in for {name}: nothing in it works",
    )


def _fill(name: str, version: str, toolchain: Toolchain, prefix: Path) -> None:
    if name == "libmagma-devel":
        (prefix / "include").mkdir()
        (prefix / "include" / "magma.h").write_text(_MAGMA_HEADER.format(version=Version(version)))
    if name == "libmagma":  # an empty library to link against and to load
        (prefix / "lib").mkdir()
        library = prefix / "lib" / "libmagma.so"
        words = ["-shared", "-fPIC", "-Wl,-soname,libmagma.so", "-o", str(library), "-x", "c", "/dev/null"]
        run([toolchain.cc, *words], what="compiling the stand-in for libmagma")
