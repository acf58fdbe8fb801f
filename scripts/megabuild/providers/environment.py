"""The build environment that a provider returns: channels, a root folder, sources, and overrides of the config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from groundwork.machine import machine_platform as machine_platform
from megabuild.configs.config import Config


@dataclass(frozen=True, kw_only=True)
class Download:
    """What a run would download first."""

    what: str  #: ``wheels``
    count: int
    size: int  #: bytes, of those whose size is known


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Everything a build needs besides the recipe and the config."""

    #: Conda channels in order of priority: a folder (a local channel) or a URL or name. Empty while the root that has
    #: their content is still to be made.
    channels: tuple[Path | str, ...]
    #: Pythons of the config that can be built here, such as "3.12" or "3.13t".
    pythons: tuple[str, ...]
    #: Root folder to enter for the build (Debian's tree), or None to build on the host or in an image.
    root: Path | None = None
    source: Path | None = None  #: Unpacked source tree of PyTorch, where the provider brings one.
    #: The part of `source` that libtorch is made from, if not all of it: a folder, or its files with their
    #: sha256, where these are known without having them.
    staging_source: Path | Mapping[str, str] | None = None
    #: Pythons of the config that cannot be built here, with the reason where one is known.
    left_out: Mapping[str, str] = field(default_factory=dict)
    #: Variant keys that must differ from the config's, such as the version of the installed compiler.
    overrides: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Virtual packages for the solver, where the target machine differs from this one: the glibc of
    #: `root`, the CUDA of a GPU that a build machine does not need to have. Such as {"__glibc": "2.41"}.
    virtual_packages: Mapping[str, str] = field(default_factory=dict)
    #: Sentences for the plan: Pythons left out, versions that differ from the config's.
    notes: tuple[str, ...] = ()
    stand_ins: tuple[str, ...] = ()  #: Names of packages that are empty, in a rehearsal.
    downloads: tuple[Download, ...] = ()  #: Of a plan: what its run would get first.
    ready: bool = True  #: Nothing is left to be made or downloaded before the build.
    to_make: int = 0  #: Bytes in the cache that the provider has yet to make.
    to_pack: int = 0  #: Packages of the local channel that are still to be packed, once per machine.

    @property
    def local(self) -> bool:
        """Whether compilers and glibc are this machine's or its root's, not a channel's for old systems."""
        return any(isinstance(channel, Path) for channel in self.channels)


def virtual_gpu(config: Config) -> dict[str, str]:
    """Return the GPU that CUDA packages ask for, which building and testing them does not need."""
    return {"__cuda": config.cuda_version} if config.cuda_version else {}
