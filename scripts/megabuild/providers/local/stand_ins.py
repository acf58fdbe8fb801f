"""Empty packages that let a rehearsal solve for what this machine cannot provide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rattler import MatchSpec

from groundwork.names import PackageId
from megabuild.providers.command import run
from megabuild.providers.local.compilers import Toolchain
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.specs import examples

_TAG = "rehearsal"

_MAGMA_HEADER = """\
/* Rehearsal stand-in: enough of MAGMA's header for a build to find out its version. */
#ifndef MAGMA_H
#define MAGMA_H
#define MAGMA_VERSION_MAJOR {major}
#define MAGMA_VERSION_MINOR {minor}
#define MAGMA_VERSION_MICRO {micro}
#endif
"""


def packages(
    missing: Mapping[str, Sequence[MatchSpec]],
    companions: Mapping[str, Sequence[str]],
    toolchain: Toolchain,
    platform: str,
) -> list[LocalPackage]:
    """Describe stand-ins that satisfy all specs of the packages, by name, that are missing on this machine.

    The companions of a package are what its run_exports ask for.

    Raises ProviderError: A spec that no version satisfies.
    """
    made: list[LocalPackage] = []
    for name, specs in sorted(missing.items()):
        others = companions.get(name, ())
        for example in examples(specs, name, _TAG):
            made.append(_stand_in(example, toolchain, platform, brings=others))
            more = (PackageId(other, example.version, _TAG) for other in others if other not in missing)
            made += [_stand_in(other, toolchain, platform) for other in more]
    return made


def _stand_in(
    package: PackageId, toolchain: Toolchain, platform: str, brings: Sequence[str] = ()
) -> LocalPackage:
    name, version, build = package
    fill = {
        "libmagma": partial(_fill_magma, toolchain),
        "libmagma-devel": partial(_fill_magma_devel, version),
    }.get(name, partial(_fill_note, name))
    return LocalPackage(
        name=name,
        version=version,
        build=build,
        platform=platform,
        depends=tuple(brings),
        run_exports={"weak": tuple(brings)} if brings else {},
        inputs={"compiler": toolchain.digest} if name == "libmagma" else {},
        fill=fill,
        summary=f"rehearsal stand-in for {name}: nothing in it works",
    )


def _fill_note(name: str, prefix: Path) -> None:
    folder = prefix / "share" / "megabuild" / "stand-ins"
    folder.mkdir(parents=True)
    (folder / name).write_text(f"Rehearsal stand-in for {name}; a real build takes the real package.\n")


def _fill_magma_devel(version: str, prefix: Path) -> None:
    """Write a header with the version."""
    _fill_note("libmagma-devel", prefix)
    major, minor, micro = ([int(part) for part in version.split(".") if part.isdigit()] + [0, 0, 0])[:3]
    (prefix / "include").mkdir()
    (prefix / "include" / "magma.h").write_text(_MAGMA_HEADER.format(major=major, minor=minor, micro=micro))


def _fill_magma(toolchain: Toolchain, prefix: Path) -> None:
    """Write an empty library to link against and to load."""
    _fill_note("libmagma", prefix)
    (prefix / "lib").mkdir()
    library = prefix / "lib" / "libmagma.so"
    words = ["-shared", "-fPIC", "-Wl,-soname,libmagma.so", "-o", str(library), "-x", "c", "/dev/null"]
    run([toolchain.cc, *words], what="making the stand-in of libmagma")
