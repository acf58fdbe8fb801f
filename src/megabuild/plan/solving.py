"""Solves environments before the engine does: the engine's error on an unsolvable one names no packages."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import rattler
from rattler import ChannelPriority, Gateway, RepoDataRecord, solve
from rattler.exceptions import GatewayError, InvalidMatchSpecError

from groundwork import in_use, redact
from groundwork.channel_folder import package_keys
from groundwork.errors import MegabuildError, PreflightError, UsageError, of_text
from groundwork.network.channel_logins import Channels, rattler_client
from groundwork.user_folders import cache_folder
from megabuild.configs.platforms import Platforms
from megabuild.configs.render import PlannedPackage
from megabuild.plan.virtual_packages import find_virtual_packages
from megabuild.providers.conda_forge.provider import ChannelError
from megabuild.providers.environment import Environment

#: Folder of the cache with the lists of remote channels' packages; rattler's own is outside of the cache.
CHANNEL_INDEXES = "repodata"
_PYTHON = "python"


def environment(specs: Sequence[str], given: Environment, platform: str, what: str) -> dict[str, str]:
    """Solve one environment, as :func:`solved` does; return version, build string and sha256 of each package by name.

    The sha256 is the file's. For a package made on this machine it is over the inputs: these outlive the file.
    """
    remedy = "change the requirement in the recipe, or build another config"
    channels = Channels(by_priority=given.channels, logins=given.logins)
    records = solved(specs, channels, platform, virtual=given.virtual_packages, what=what, remedy=remedy)
    keys: dict[str, str] = {}
    for channel in given.channels:
        if channel.folder:
            made = package_keys(channel.folder)
            keys |= {f"{channel.url.rstrip('/')}/{path}": key for path, key in made.items()}
    packages = {}
    for record in records:
        sha256 = record.sha256.hex() if record.sha256 else ""
        place = f"{record.channel.rstrip('/')}/{record.subdir}/{record.file_name}"
        identity = keys.get(place) or sha256
        packages[record.name.source] = f"{record.version} {record.build} {identity[:16]}"
    return dict(sorted(packages.items()))


def solved(
    specs: Sequence[str], channels: Channels, platform: str, *, virtual: Mapping[str, str], what: str, remedy: str,
    gateway: Gateway | None = None,
) -> list[RepoDataRecord]:  # fmt: skip
    """Return the packages of one environment; ``virtual`` packages (``__glibc``, ``__cuda``) replace the platform's.

    ``gateway``: of :func:`make_gateway`, which reads each index once; default: one of its own.

    Raises PreflightError: There is no solution; the message names the conflicting packages.
    Raises ChannelError: A channel refuses, does not answer, or has an unreadable index.
    Raises UsageError: A requirement cannot be parsed.
    """
    reader = gateway or make_gateway(channels)
    try:
        return asyncio.run(
            solve(
                [rattler.Channel(channel.url) for channel in channels.by_priority],
                list(specs),
                gateway=reader,
                platforms=[platform, "noarch"],  # type: ignore[list-item]  # a Literal of all platforms
                virtual_packages=find_virtual_packages(platform, virtual),
                channel_priority=ChannelPriority.Strict,
            )
        )
    except GatewayError as error:
        raise _fault_of_channel(error, channels, platform) from error
    except InvalidMatchSpecError as error:
        raise UsageError(
            f"{what}: {_one_line(error)}", f"correct the requirements: {', '.join(specs)}"
        ) from error
    except Exception as error:  # rattler has one exception per layer, without a common base
        reason = _one_line(error)
        raise of_text(reason) or PreflightError(f"{what} cannot be solved: {reason}", remedy) from error


def make_gateway(channels: Channels) -> Gateway:
    """Return rattler's reader of channels' indexes, which it keeps in the cache."""
    cache = cache_folder(os.environ)
    in_use.mark(cache)  # while it is empty
    return Gateway(cache_dir=cache / CHANNEL_INDEXES, client=rattler_client(channels))


def list_packages(
    names: Sequence[str], channels: Channels, platforms: Platforms
) -> list[frozenset[tuple[str, str]]]:
    """Return the packages of these names in each channel, as file name and sha256.

    Raises ChannelError: A channel refuses, does not answer, or has an unreadable index.
    """
    gateway = make_gateway(channels)
    found = []
    for channel in channels.by_priority:
        subdirs: Any = list(platforms.subdirs)  # typed as a literal of all platforms
        query = gateway.query([rattler.Channel(channel.url)], subdirs, names, recursive=False)
        try:
            answers = asyncio.run(query)
        except GatewayError as error:
            raise _fault_of_channel(error, channels, platforms.target) from error
        listed = set[tuple[str, str]]()
        for records in answers:
            for record in records:
                listed.add((record.file_name, (record.sha256 or b"").hex()))
        found.append(frozenset(listed))
    return found


def _one_line(error: Exception) -> str:
    return redact.text(" ".join(str(error).split()))


def _fault_of_channel(error: GatewayError, channels: Channels, platform: str) -> MegabuildError:
    """Return the error of the first channel that does not give its index; rattler's error may not name it."""
    reason = _one_line(error)
    faulty = "a channel"
    for channel in channels.by_priority:
        single = [rattler.Channel(channel.url)]
        names = make_gateway(channels).names(single, [platform, "noarch"])  # type: ignore[list-item]
        try:
            asyncio.run(names)
        except GatewayError as own:
            reason = _one_line(own)
            faulty = channel.address
            break
    return of_text(reason) or ChannelError(
        f"channel {faulty} cannot be read: {reason}",
        "check the channel's address, its user, password or token, and the network (HTTPS_PROXY), then run again",
    )


def own_names(own: Iterable[PlannedPackage], platform: str) -> frozenset[str]:
    """Return the names of a run's packages that its environments of a platform get from the run, not from a channel.

    A cross build makes no packages for the platform that compiles: its build environments have those of a channel.
    """
    return frozenset(package.name for package in own if package.subdir in (platform, "noarch"))


class Solver:
    """Solves the environments of planned packages, each once.

    `own`: packages that the run itself makes, which no channel has yet.
    """

    def __init__(self, given: Environment, platforms: Platforms, own: Collection[PlannedPackage]) -> None:
        self._given = given
        self._platforms = platforms
        self._own = own
        self._lines: dict[tuple[str, tuple[str, ...]], list[str]] = {}

    def built_with(self, package: PlannedPackage) -> list[str]:
        """Solve all environments of a package; return a line for each package of its build and host environments.

        Raises PreflightError: One of them has no solution.
        """
        if not self._given.channels:  # before a run has made them
            return []
        lines = [*self._solve(package, "build", package.build), *self._solve(package, "host", package.host)]
        # with the package's own Python, not any
        python = [spec for spec in package.host if _name(spec) == _PYTHON]
        self._solve(package, "run", (*package.run, *python))
        tests = (*package.test, *python)
        try:
            self._solve(package, "test", tests)
        except PreflightError:
            others = self._without_own(tests, self._platforms.of("test"))
            names = {_name(spec) for spec in others}
            if len(names) == len(others):
                raise
            # tests that need different versions have separate environments
        return lines

    def _without_own(self, specs: Iterable[str], platform: str) -> tuple[str, ...]:
        made_here = own_names(self._own, platform)
        return tuple(spec for spec in specs if _name(spec) not in made_here)

    def _solve(self, package: PlannedPackage, kind: str, needs: Iterable[str]) -> list[str]:
        """Solve one environment unless it is known; return a line for each of its packages."""
        platform = self._platforms.of(kind)
        specs = self._without_own(needs, platform)
        if not specs:
            return []
        if (platform, specs) not in self._lines:
            what = f"{package.name} {package.build_string}: {kind} environment"
            packages = environment(specs, self._given, platform, what)
            self._lines[platform, specs] = [f"{kind} {name} {build}" for name, build in packages.items()]
        return self._lines[platform, specs]


def _name(spec: str) -> str:
    return spec.split()[0]


def free_threaded_gaps(
    packages: Sequence[PlannedPackage], given: Environment, platforms: Platforms
) -> dict[str, str]:
    """Return the free-threaded Pythons with an unsolvable environment, and the solver's error for each."""
    solver = Solver(given, platforms, packages)
    gaps: dict[str, str] = {}
    for package in packages:
        python = package.python or ""
        if python.endswith("t") and python in given.pythons:
            try:
                solver.built_with(package)
            except PreflightError as error:
                gaps[python] = error.message
    return gaps
