"""Asking the solver before the engine does, whose answer to an unsolvable environment is a sentence without names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rattler import Channel, ChannelPriority, VirtualPackage, solve
from rattler.virtual_package.virtual_package import Override, VirtualPackageOverrides

from megabuild.configs.render import PlannedPackage
from megabuild.errors import PreflightError
from megabuild.providers import channel


@dataclass(frozen=True, kw_only=True)
class Solved:
    """One package of a solved environment.

    Parameters
    ----------
    sha256:
        Of the file; for a package made on this machine, over what it was made of, which outlives the file.
    """

    name: str
    version: str
    build_string: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.version} {self.build_string} {self.sha256[:16]}"


def url(channel: Path | str) -> str:
    """Spell a channel as the solver and the engine want it."""
    return channel.absolute().as_uri() if isinstance(channel, Path) else channel


def environment(
    specs: Sequence[str],
    channels: Sequence[Path | str],
    platform: str,
    *,
    virtual: Mapping[str, str],
    what: str,
) -> tuple[Solved, ...]:
    """Solve one environment.

    Parameters
    ----------
    specs:
        Match specs.
    channels:
        Channels in order of priority.
    platform:
        conda's platform name.
    virtual:
        Virtual packages that differ from this machine's, by name (``__glibc``, ``__cuda``).
    what:
        What the environment is for, to be named in an error.

    Raises
    ------
    PreflightError
        There is no solution; the message says which packages are in the way.
    """
    try:
        records = asyncio.run(
            solve(
                [Channel(url(one)) for one in channels],
                list(specs),
                platforms=[platform, "noarch"],  # type: ignore[list-item]  # a Literal of all platforms
                virtual_packages=VirtualPackage.detect(_overrides(virtual)),
                channel_priority=ChannelPriority.Strict,
            )
        )
    except Exception as error:  # rattler has one exception per layer, without a common base
        raise PreflightError(
            f"{what} cannot be put together: {' '.join(str(error).split())}",
            "the provider lacks a package that the recipe asks for: see --plan for what it has",
        ) from error
    made_of = {
        name: key for folder in channels if isinstance(folder, Path) for name, key in channel.made_of(folder).items()
    }
    return tuple(
        sorted(
            (
                Solved(
                    name=record.name.source,
                    version=str(record.version),
                    build_string=str(record.build),
                    sha256=made_of.get(record.file_name) or (record.sha256.hex() if record.sha256 else ""),
                )
                for record in records
            ),
            key=lambda solved: solved.name,
        )
    )


def _overrides(virtual: Mapping[str, str]) -> VirtualPackageOverrides:
    overrides = VirtualPackageOverrides.from_env()
    if "__glibc" in virtual:
        overrides.libc = Override.string(virtual["__glibc"])
    if "__cuda" in virtual:
        overrides.cuda = Override.string(virtual["__cuda"])
    return overrides


def check(
    planned: Iterable[PlannedPackage], channels: Sequence[Path | str], virtual: Mapping[str, str]
) -> int:
    """Solve every environment of a plan, apart from packages that the plan itself will make.

    Parameters
    ----------
    planned:
        The plan's packages.
    channels, virtual:
        As in `environment`.

    Returns
    -------
    int
        Number of environments.

    Raises
    ------
    PreflightError
        One of them has no solution.
    """
    planned = tuple(planned)
    own = {package.name for package in planned}
    done: set[tuple[str, ...]] = set()
    for package in planned:
        for kind in ("build", "host", "run", "test"):
            specs = tuple(spec for spec in getattr(package, kind) if spec.split()[0] not in own)
            if kind == "test" and package.python:
                specs = (*specs, *(spec for spec in package.host if spec.split()[0] == "python"))
            if specs and specs not in done:
                done.add(specs)
                platform = package.subdir if package.subdir != "noarch" else _platform(planned)
                what = f"{package.name} {package.build_string}: {kind} environment"
                environment(specs, channels, platform, virtual=virtual, what=what)
    return len(done)


def _platform(planned: Sequence[PlannedPackage]) -> str:
    return next((package.subdir for package in planned if package.subdir != "noarch"), "noarch")
