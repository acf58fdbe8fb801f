"""Make a local conda channel from this machine's interpreters and compilers, and from PyPI's wheels."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rattler import MatchSpec

from groundwork.errors import ProviderError
from groundwork.files import FileLock, sha256
from groundwork.process import run
from megabuild.providers import catalogue as table
from megabuild.providers import specs
from megabuild.providers.catalogue import Catalogue
from megabuild.providers.command import each
from megabuild.providers.environment import ProviderRequest
from megabuild.providers.local import compilers, placeholder_packages, python
from megabuild.providers.local.compilers import Toolchain, probe
from megabuild.providers.local.interpreters import Interpreter
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.local.package_store import PackageStore, planned
from megabuild.providers.pypi import download, lock, wheel_to_conda
from megabuild.providers.pypi.lock import Wheel

#: Search path for this machine's programs.
_PATH = "/usr/local/bin:/usr/bin:/bin"
_RESOLVERS = 2  # each runs an interpreter and uv


@dataclass(frozen=True, kw_only=True)
class LocalChannel:
    """A channel: finished, or an index for a plan."""

    path: Path  #: Folder with repodata, usable as a channel.
    packages: tuple[LocalPackage, ...]  #: The packages in it.
    toolchain: Toolchain  #: The compiler that was packaged.
    stand_ins: tuple[str, ...]  #: Names of the packages that are empty.
    by_name: tuple[str, ...]  #: Packages not in the catalogue, taken from wheels of the same name.
    ready: bool = True  #: False if it is an index for a plan.
    #: In a plan: packages not packed yet.
    missing: tuple[LocalPackage, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Side:
    """What a channel must have for one platform."""

    platform: str
    needs: Sequence[str]  #: Requirements; their versions of Python and compilers are ignored.
    interpreters: Mapping[str, Interpreter]  #: By X.Y(t).
    toolchain: Toolchain
    own: Sequence[LocalPackage]  #: Compilers and other packages that are not made from wheels.
    #: Interpreters that run on this machine, by X.Y(t): they compile modules to byte code.
    running: Mapping[str, Interpreter]


def make(
    request: ProviderRequest,
    needs: Sequence[str],
    interpreters: Mapping[str, Interpreter],
    *,
    survey: bool,
    toolchain: Toolchain | None = None,
    extra: Sequence[LocalPackage] = (),
    more: Sequence[str] = (),
    only: Collection[str] = (),
    any_wheel: bool = False,
) -> LocalChannel:
    """Return the channel that serves ``needs`` on this machine's platform, as :func:`make_of_sides` does.

    The channel has ``interpreters``, by X.Y(t), ``toolchain`` (default: this machine's), and the ``extra`` packages.
    """
    platform = request.config.platform
    compiler = toolchain or probe()
    side = Side(
        platform=platform,
        needs=needs,
        interpreters=interpreters,
        toolchain=compiler,
        own=[*compilers.packages(compiler, platform), *extra],
        running=interpreters,
    )
    return make_of_sides(request, [side], survey=survey, more=more, only=only, any_wheel=any_wheel)


def make_of_sides(
    request: ProviderRequest,
    sides: Sequence[Side],
    *,
    survey: bool,
    more: Sequence[str] = (),
    only: Collection[str] = (),
    any_wheel: bool = False,
) -> LocalChannel:
    """Return the channel that serves the needs of all ``sides``, from the cache or newly made.

    It also has wheels from pip's indexes. A rehearsal's has empty packages for those that this machine cannot provide.
    ``more``: further simple indexes (URLs) and folders of wheels.
    ``any_wheel``: use wheels of the same name for packages that the catalogue does not list.
    ``only``: download and pack nothing for other Pythons (empty: all). All other packages stay the same.
    ``survey``: make only an index for a solver, in seconds and almost without downloads.

    Raises ProviderError: No compiler, no network, or a requirement that cannot be met.
    """
    unique: dict[str, LocalPackage] = {}
    wheels: list[Wheel] = []
    stand_ins: set[str] = set()
    by_name: dict[str, None] = {}
    # all are described before packing, to fail at once without a network
    for side in sides:
        described = _describe(request, side, more=more, only=only, any_wheel=any_wheel)
        unique |= {package.key: package for package in described.packages}
        wheels += described.wheels
        stand_ins |= described.stand_ins
        by_name |= dict.fromkeys(described.by_name)
    packages = tuple(unique.values())
    if survey:
        index = _plan(packages, request)
    else:
        index = _Index(path=_pack(packages, wheels, request, more))
    return LocalChannel(
        path=index.path,
        packages=packages,
        toolchain=sides[-1].toolchain,
        stand_ins=tuple(sorted(stand_ins)),
        by_name=tuple(by_name),
        ready=index.is_ready,
        missing=index.missing,
    )


@dataclass(frozen=True, kw_only=True)
class _Described:
    """The packages of one side."""

    packages: Sequence[LocalPackage]
    wheels: Sequence[Wheel]  #: some are made from these
    stand_ins: Set[str]  #: names of empty ones
    by_name: Sequence[str]  #: those not in the catalogue, taken from wheels of the same name


def _describe(
    request: ProviderRequest, side: Side, *, more: Sequence[str], only: Collection[str], any_wheel: bool
) -> _Described:
    """Describe the packages of one side."""
    platform = side.platform
    catalogue = table.load()
    if request.rehearsal:
        catalogue = catalogue.of_rehearsal()
    asked = specs.parse(side.needs)
    needed = [name for name in side.interpreters if not only or name in only]
    own: list[LocalPackage] = []
    for name in needed:
        own += python.packages(side.interpreters[name], platform, side.running[name])
    own += side.own
    own += _launchers(catalogue.programs.intersection(asked), platform)
    missing = asked.keys() - {package.name for package in own}
    missing -= {*catalogue.wheels, *catalogue.tools, *catalogue.companions}
    by_name: tuple[str, ...] = ()
    if any_wheel:
        by_name = lock.with_wheels(missing, catalogue, side.interpreters.values(), more)
        catalogue = catalogue.with_wheels(by_name)
        missing -= set(by_name)
    if missing:
        if not request.rehearsal:
            raise _not_provided(missing)
        lacking = {name: asked[name] for name in sorted(missing)}
        own += placeholder_packages.packages(lacking, catalogue.stand_ins, side.toolchain, platform)
    wheels = _describe_wheels(request, side, asked, catalogue, more)
    for package in wheels.packages:
        if not package.python:
            own.append(package)
        elif package.python in needed:
            own.append(replace(package, interpreter=side.running[package.python].executable))
    return _Described(packages=own, wheels=wheels.wheels, stand_ins=missing, by_name=by_name)


def _not_provided(names: Iterable[str]) -> ProviderError:
    return ProviderError(
        f"{', '.join(sorted(names))}: cannot be provided by this machine",
        "only a channel has them: use a conda-forge config or --provider conda-forge, where conda-forge or"
        " a mirror (CONDA_CHANNEL_ALIAS) is reachable",
    )


@dataclass(frozen=True, kw_only=True)
class _Index:
    path: Path  #: the channel's folder
    is_ready: bool = True  #: whether it has the packages
    missing: tuple[LocalPackage, ...] = ()  #: not packed yet


def _plan(packages: Sequence[LocalPackage], request: ProviderRequest) -> _Index:
    """Return the channel with these packages if it exists, else an index for a plan."""
    folder = request.cache / "channel"
    store = PackageStore(folder)
    missing = tuple(store.missing(packages))
    existing = store.whole(packages)
    if existing is not None:
        return _Index(path=existing, missing=missing)
    index = planned(folder, packages, request.config.platforms.subdirs)
    return _Index(path=index, is_ready=False, missing=missing)


def _pack(
    packages: Sequence[LocalPackage], wheels: Sequence[Wheel], request: ProviderRequest, more: Sequence[str]
) -> Path:
    """Pack the missing packages, after a download of their wheels; return the channel with all of them."""
    folder = request.cache / "channel"
    folder.mkdir(parents=True, exist_ok=True)
    store = PackageStore(folder)
    with FileLock(folder / "lock"):
        sources = {package.inputs.get("wheel") for package in store.missing(packages)}
        unpacked = [wheel for wheel in wheels if wheel.sha256 in sources]
        download.download(unpacked, request.cache / "wheels", request.report, more=more)
        store.ensure(packages, request.report, "packing Pythons, compilers and wheels")
        channel = store.channel(packages, request.config.platforms.subdirs)
        store.clean()
    return channel


@dataclass(frozen=True, kw_only=True)
class _Wheels:
    wheels: Sequence[Wheel]
    packages: Sequence[LocalPackage]  #: made from them


def _describe_wheels(
    request: ProviderRequest,
    side: Side,
    asked: Mapping[str, Sequence[MatchSpec]],
    catalogue: Catalogue,
    more: Sequence[str],
) -> _Wheels:
    """Resolve the wheels of packages, and describe the packages made from them."""
    needs: dict[str, Sequence[MatchSpec]] = {}
    for name, asks in asked.items():
        if name in catalogue.wheels or name in catalogue.tools:
            needs[name] = asks
    # a companion is made from the wheel of the package that it was split from
    for name in catalogue.companions.keys() & asked:
        needs.setdefault(catalogue.companions[name], ())
    if not needs:
        return _Wheels(wheels=(), packages=())
    folder = request.cache / "wheels"
    projects = [catalogue.pypi_name(name) + specs.pip_specifier(asks) for name, asks in needs.items()]
    resolve = partial(lock.resolve, projects, folder=folder / "locks", more=more)
    locks = list(each(resolve, side.interpreters.values(), _RESOLVERS))
    wheels = lock.wheels_of(locks)
    # pybind11-abi's version is in a header
    opened = [wheel for wheel in wheels if wheel.name == wheel_to_conda.PYBIND11]
    download.download(opened, folder, request.report, more=more)
    platform = side.platform
    packages = wheel_to_conda.packages(locks, folder, catalogue, platform)
    packages += wheel_to_conda.other_names(packages, needs, catalogue, platform)
    return _Wheels(wheels=wheels, packages=packages)


def _launchers(names: Iterable[str], platform: str) -> list[LocalPackage]:
    """Describe a package for each of these programs that this machine has."""
    packages: list[LocalPackage] = []
    for name in sorted(names):
        program = shutil.which(name, path=_PATH)
        if program is not None:
            packages.append(_launcher_package(name, program, platform))
    return packages


def _launcher_package(name: str, program: str, platform: str) -> LocalPackage:
    done = run([program, "--version"], timeout=120)
    found = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    version = found.group() if found else "0"
    return LocalPackage(
        name=name,
        version=version,
        platform=platform,
        inputs={"program": program, "sha256": sha256(Path(program).resolve())},
        fill=partial(_write_launcher, name, program),
        summary=f"Starts the system's {program}",
    )


def _write_launcher(name: str, program: str, prefix: Path) -> None:
    launcher = prefix / "bin" / name
    launcher.parent.mkdir()
    launcher.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    launcher.chmod(0o755)
