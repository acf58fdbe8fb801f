"""The input of a provider, and the build environment that it returns: channels, a root folder, sources, overrides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from groundwork.channel import Channel
from groundwork.network.channel_logins import Login
from groundwork.progress import Notes
from megabuild.configs.config import Config
from megabuild.configs.render import PlannedPackage


@dataclass(frozen=True, kw_only=True)
class ProviderRequest:
    """The input of a provider for one run."""

    config: Config  #: names the provider; rehearsals use the local one
    planned: Sequence[PlannedPackage]  #: rendered packages, whose requirements the channel must have
    cache: Path  #: cache folder, shared by all configs
    report: Notes  #: receives each step and its progress
    rehearsal: bool = False  #: use empty packages for those that this machine lacks


@dataclass(frozen=True, kw_only=True)
class Pending:
    """What a provider must still make or download."""

    wheels: int = 0  #: Number of wheels to download first.
    download: int = 0  #: Their bytes, without wheels of unknown size.
    bytes: int = 0  #: Bytes that the provider will add to the cache.
    packages: int = 0  #: Number of packages of the local channel not packed yet (once per machine).
    sources: int = 0  #: Number of the wheels that are PyTorch's.


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Everything a build needs in addition to the recipe and the config."""

    #: By priority, without credentials. Empty in the plan of a Debian root that is not made yet.
    channels: tuple[Channel, ...]
    #: Pythons of the config that can be built here, such as "3.12" or "3.13t".
    pythons: tuple[str, ...]
    #: Root folder to enter for the build (Debian's tree), or None to build on the host or in an image.
    root: Path | None = None
    emulator: Path | None = (
        None  #: A static program that runs the programs of the config's platform in `root`.
    )
    source: Path | None = None  #: PyTorch's source tree or folder of wheels, if the provider has one.
    #: The part of `source` that libtorch is made from, if not all: file names with their sha256.
    staging_source: Mapping[str, str] | None = None
    #: Pythons of the config that cannot be built here, with the reason if it is known.
    left_out: Mapping[str, str] = field(default_factory=dict)
    #: Variant keys that must differ from the config's, such as the version of the installed compiler.
    overrides: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Paths in their channel of the packages that start programs of this machine or of `root`, which no channel keeps.
    programs: frozenset[str] = frozenset()
    #: Virtual packages for the solver that differ from this machine's: the glibc of `root`, or the CUDA of a GPU that a
    #: build machine need not have. Such as {"__glibc": "2.41"}.
    virtual_packages: Mapping[str, str] = field(default_factory=dict)
    #: Notes for the plan, such as versions that differ from the config's.
    notes: tuple[str, ...] = ()
    stand_ins: tuple[str, ...] = ()  #: Names of a rehearsal's empty packages.
    logins: tuple[Login, ...] = ()  #: Credentials of channels.
    #: Keys of the packages made from files of `root`, by name. They leave the root's own packages out, whose versions
    #: the plan reads one by one: else each update of one of them would change every package made from the root.
    of_root: Mapping[str, str] = field(default_factory=dict)
    pending: Pending | None = None  #: In a survey: work before the build; None if there is none.

    @property
    def local(self) -> bool:
        """Whether compilers and glibc come from this machine or `root`, not from a channel for old systems."""
        return any(channel.this_machine for channel in self.channels)


def virtual_gpu(config: Config) -> dict[str, str]:
    """Return the virtual package that CUDA packages require, so that they solve on a machine without a GPU."""
    if config.cuda_version is None:
        return {}
    return {"__cuda": config.cuda_version}
