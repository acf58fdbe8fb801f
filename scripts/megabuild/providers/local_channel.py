"""A conda channel made on the spot from this machine's interpreters and compilers and from PyPI's wheels."""

from __future__ import annotations

import platform as host
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout
from rattler import MatchSpec

from megabuild.errors import ProviderError
from megabuild.providers import catalogue as table
from megabuild.providers import (
    channel,
    compiler_packages,
    interpreters,
    programs,
    python_package,
    specs,
    stand_ins,
)
from megabuild.providers.catalogue import Catalogue
from megabuild.providers.interpreters import Interpreter
from megabuild.providers.package import Package
from megabuild.providers.parallel import each
from megabuild.providers.store import Record, Store
from megabuild.providers.toolchain import Toolchain, probe
from megabuild.providers.wheels import convert, download, lock

_PATIENCE = 1800.0  # seconds to wait for another run that is making packages
_RESOLVERS = 2  # pip's resolver keeps a core busy


@dataclass(frozen=True, kw_only=True)
class LocalChannel:
    """A finished channel and what the caller should know about it.

    Parameters
    ----------
    path:
        Folder with repodata, usable as a channel.
    records:
        The packages in it.
    interpreters:
        X.Y(t) to the interpreter that was packaged.
    toolchain:
        The compiler that was packaged.
    stand_ins:
        Names of the packages that are empty.
    """

    path: Path
    records: tuple[Record, ...]
    interpreters: Mapping[str, Interpreter]
    toolchain: Toolchain
    stand_ins: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Sorted:
    """Requirements by where they are taken from."""

    wheels: dict[str, tuple[MatchSpec, ...]] = field(default_factory=dict)
    programs: list[str] = field(default_factory=list)
    missing: dict[str, tuple[MatchSpec, ...]] = field(default_factory=dict)


def machine_platform() -> str:
    """The conda subdir of this machine, such as "linux-64"."""
    system, machine = host.system(), host.machine()
    machines = {"x86_64": "64", "amd64": "64", "aarch64": "aarch64", "arm64": "arm64"}
    prefix = {"Linux": "linux", "Darwin": "osx"}.get(system, system.lower())
    return f"{prefix}-{machines.get(machine.lower(), machine)}"


def require(platform: str) -> None:
    """Raise a ProviderError where no channel can be made for `platform` here."""
    if platform != machine_platform() or platform not in compiler_packages.MACHINES:
        raise ProviderError(
            f"the local channel serves {machine_platform()}, not {platform}",
            "Build this config on such a machine, or in its container image.",
        )


def make(
    needs: Sequence[str],
    *,
    platform: str,
    pythons: Sequence[str],
    cache: Path,
    stand_ins: bool,
    report: Callable[[str], None],
    toolchain: Toolchain | None = None,
    extra: Sequence[Package] = (),
) -> LocalChannel:
    """Make, or find in the cache, the channel that serves `needs`.

    Parameters
    ----------
    needs:
        Match specs of everything that will be installed, in any order, with repetitions. Versions asked of Pythons
        and compilers are not looked at: the channel has what the machine has.
    platform:
        Subdir to build for; must be this machine's.
    pythons:
        Pythons wanted ("3.12", "3.13t"); those the machine does not have are left out.
    cache:
        Folder for packages and wheels, shared by all configs.
    stand_ins:
        Whether what cannot be provided becomes an empty package (rehearsals) or an error.
    report:
        Told what is being done, a line at a time.
    toolchain:
        The compiler to package; None: the one of this machine.
    extra:
        Further packages to put into the channel.

    Raises
    ------
    ProviderError
        Another platform, no Python, no compiler, no network, or a requirement that cannot be met.
    """
    require(platform)
    found = interpreters.find(report)
    chosen = {python: found[python] for python in pythons if python in found}
    if not chosen:
        raise ProviderError(
            f"none of the Pythons {', '.join(pythons)} is on this machine (found: {', '.join(found) or 'none'})",
            "Install one with its headers: pyenv install 3.12, or uv python install 3.12.",
        )
    compiler = toolchain or probe()
    catalogue = table.load()
    asked = _sort(specs.parse(needs), catalogue, platform, {package.name for package in extra})
    if asked.missing and not stand_ins:
        raise ProviderError(
            f"this machine cannot provide: {', '.join(sorted(asked.missing))}",
            "Use a config whose provider has these packages, or --rehearse, where empty ones stand in.",
        )
    with _locked(cache / "channel", report):
        store = Store(cache / "channel")
        own = [package for one in chosen.values() for package in python_package.packages(one, platform)]
        own += compiler_packages.packages(compiler, platform)
        own += programs.packages(asked.programs, platform)
        own += _stand_ins(asked.missing, catalogue, compiler, platform)
        own += extra
        locks = _resolve(
            asked.wheels, chosen, catalogue, cache / "wheels"
        )  # first: fails at once without a network
        with ThreadPoolExecutor(1) as pool:  # packs what is here while wheels are on their way
            packing = pool.submit(store.ensure, own, report)
            files = download.download(locks, chosen, cache / "wheels", report)
        wheels = convert.packages(locks, files, catalogue, platform)
        records = packing.result() + store.ensure(wheels, report)
        path = channel.publish(records, store, cache / "channel", platform)
        store.clean()
    _check_wheels(asked.wheels, records, chosen)
    return LocalChannel(
        path=path,
        records=records,
        interpreters=chosen,
        toolchain=compiler,
        stand_ins=tuple(sorted(asked.missing)),
    )


def _sort(
    asked: Mapping[str, tuple[MatchSpec, ...]], catalogue: Catalogue, platform: str, extra: set[str]
) -> _Sorted:
    result = _Sorted()
    always = {"python", "python_abi", *compiler_packages.names(platform), *extra}
    for name, wanted in asked.items():
        if name in catalogue.companions:
            result.wheels.setdefault(catalogue.companions[name], ())
        elif name in catalogue.wheels or name in catalogue.tools:
            result.wheels[name] = wanted
        elif name in catalogue.programs and programs.installed(name):
            result.programs.append(name)
        elif name not in always:
            result.missing[name] = wanted
    return result


def _resolve(
    wanted: Mapping[str, tuple[MatchSpec, ...]],
    chosen: Mapping[str, Interpreter],
    catalogue: Catalogue,
    folder: Path,
) -> list[lock.Lock]:
    if not wanted:
        return []
    requirements = [
        catalogue.wheels.get(name, name) + specs.pip_specifier(asked) for name, asked in wanted.items()
    ]

    def resolve(interpreter: Interpreter) -> lock.Lock:
        return lock.resolve(requirements, interpreter, folder / "locks")

    return list(each(resolve, chosen.values(), _RESOLVERS))


def _stand_ins(
    missing: Mapping[str, tuple[MatchSpec, ...]], catalogue: Catalogue, compiler: Toolchain, platform: str
) -> list[Package]:
    return stand_ins.packages(missing, catalogue.stand_ins, compiler, platform)


def _check_wheels(
    wanted: Mapping[str, tuple[MatchSpec, ...]], records: Sequence[Record], chosen: Mapping[str, Interpreter]
) -> None:
    """Translating a requirement for pip loses build strings and alternatives, so check with conda's own rules."""
    for name, asked in wanted.items():
        built = [record for record in records if record.name == name]
        for spec in asked:
            if not any(
                specs.satisfied([spec], name=name, version=record.version, build=record.build)
                for record in built
            ):
                have = (
                    ", ".join(sorted({f"{record.version} {record.build}" for record in built})) or "nothing"
                )
                raise ProviderError(
                    f"PyPI has nothing for {spec} (found: {have}) with Python {', '.join(chosen)}",
                    "Loosen the requirement in the recipe or in conda_build_config.yaml.",
                )


@contextmanager
def _locked(folder: Path, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of the cache; waits for another run that is making packages."""
    folder.mkdir(parents=True, exist_ok=True)
    guard = FileLock(folder / "lock")
    try:
        guard.acquire(timeout=0)
    except Timeout:
        report("waiting for another run that is filling the cache")
        try:
            guard.acquire(timeout=_PATIENCE)
        except Timeout as error:
            raise ProviderError(
                f"{folder} has been locked for {_PATIENCE:.0f} s", "End the other run."
            ) from error
    try:
        yield
    finally:
        guard.release()
