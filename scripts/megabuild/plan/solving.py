"""Solves environments before the engine does: the engine's error on an unsolvable one names no packages."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from rattler import Channel, ChannelPriority, Gateway, RepoDataRecord, VirtualPackage, solve
from rattler.virtual_package.virtual_package import Override, VirtualPackageOverrides

from groundwork import in_use
from groundwork.errors import PreflightError, of_text
from groundwork.files import cache_folder
from megabuild.configs.render import PlannedPackage
from megabuild.providers.environment import Environment
from megabuild.providers.local import package_store

#: Folder of the cache with the lists of remote channels' packages; rattler's own is outside of the cache.
CHANNEL_INDEXES = "repodata"


def environment(specs: Sequence[str], given: Environment, platform: str, what: str) -> dict[str, str]:
    """Solve one environment, as :func:`solved` does; return version, build string and sha256 of each package by name.

    The sha256 is the file's. For a package made on this machine it is over the inputs: these outlive the file.
    """
    remedy = "change the requirement in the recipe, or build another config"
    records = solved(
        specs, given.channels, platform, virtual=given.virtual_packages, what=what, remedy=remedy
    )
    folders = (channel for channel in given.channels if isinstance(channel, Path))
    made_of = {name: key for folder in folders for name, key in package_store.made_of(folder).items()}
    packages = {}
    for record in records:
        sha256 = made_of.get(record.file_name) or (record.sha256.hex() if record.sha256 else "")
        packages[record.name.source] = f"{record.version} {record.build} {sha256[:16]}"
    return dict(sorted(packages.items()))


def solved(
    specs: Sequence[str], channels: Sequence[Path | str], platform: str, *, virtual: Mapping[str, str], what: str,
    remedy: str,
) -> list[RepoDataRecord]:  # fmt: skip
    """Return the packages of one environment; ``virtual`` packages (``__glibc``, ``__cuda``) replace this machine's.

    Raises PreflightError: There is no solution; the message names the conflicting packages.
    """
    overrides = VirtualPackageOverrides.from_env()
    if "__glibc" in virtual:
        overrides.libc = Override.string(virtual["__glibc"])
    if "__cuda" in virtual:
        overrides.cuda = Override.string(virtual["__cuda"])
    cache = cache_folder(os.environ)
    in_use.mark(cache)  # while it is empty
    addresses = (name.absolute().as_uri() if isinstance(name, Path) else name for name in channels)
    try:
        return asyncio.run(
            solve(
                [Channel(address) for address in addresses],
                list(specs),
                gateway=Gateway(cache_dir=cache / CHANNEL_INDEXES),
                platforms=[platform, "noarch"],  # type: ignore[list-item]  # a Literal of all platforms
                virtual_packages=VirtualPackage.detect(overrides),
                channel_priority=ChannelPriority.Strict,
            )
        )
    except Exception as error:  # rattler has one exception per layer, without a common base
        reason = " ".join(str(error).split())
        raise of_text(reason) or PreflightError(f"{what} cannot be solved: {reason}", remedy) from error


class Solver:
    """Solves the environments of planned packages, each once.

    `own`: names of packages that the run itself makes, which no channel has yet.
    """

    def __init__(self, given: Environment, platform: str, own: Collection[str]) -> None:
        self._given, self._platform, self._own = given, platform, own
        self._lines: dict[tuple[str, ...], list[str]] = {}

    def built_with(self, package: PlannedPackage) -> list[str]:
        """Solve all environments of a package; return a line for each package of its build and host environments.

        Raises PreflightError: One of them has no solution.
        """
        lines: list[str] = []
        # no channels before a run has made them
        kinds = ("build", "host", "run", "test") if self._given.channels else ()
        for kind in kinds:
            specs = tuple(spec for spec in getattr(package, kind) if spec.split()[0] not in self._own)
            if kind in ("run", "test"):  # with the package's own Python, not any
                specs += tuple(spec for spec in package.host if spec.split()[0] == "python")
            if specs and specs not in self._lines:
                what = f"{package.name} {package.build_string}: {kind} environment"
                try:
                    packages = environment(specs, self._given, self._platform, what)
                except PreflightError:
                    if kind == "test" and len({spec.split()[0] for spec in specs}) < len(specs):
                        continue  # tests that need different versions have separate environments
                    raise
                self._lines[specs] = [f"{kind} {name} {build}" for name, build in packages.items()]
            if specs and kind in ("build", "host"):
                lines += self._lines[specs]
        return lines


def free_threaded_gaps(
    packages: Sequence[PlannedPackage], given: Environment, platform: str
) -> dict[str, str]:
    """Return the free-threaded Pythons with an unsolvable environment, and the solver's error for each."""
    solver = Solver(given, platform, {package.name for package in packages})
    gaps: dict[str, str] = {}
    for package in packages:
        python = package.python or ""
        if python.endswith("t") and python in given.pythons and not package.skipped:
            try:
                solver.built_with(package)
            except PreflightError as error:
                gaps[python] = error.message
    return gaps
