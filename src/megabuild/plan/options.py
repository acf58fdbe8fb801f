"""The options of a run."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from groundwork.job_pool import PoolMember
from megabuild.configs.config import RECIPES, Config, recipe_of
from megabuild.isolation.base import Isolation
from megabuild.plan.run_choices import RunChoices

#: The source of a rehearsal: a scaled model of PyTorch.
MODEL = "model"
#: The source of a release: the official tarball.
OFFICIAL = "official"
#: Where isolated builds see megabuild's folders.
INSIDE = "/opt/megabuild"
#: The value of TORCH_CCACHE that switches the object cache off.
NO_OBJECT_CACHE = "none"


class CacheNames(NamedTuple):
    """The names of two caches, which builds with less or more rights write."""

    isolated: str  #: of isolated builds
    on_host: str  #: of builds on the host

    def of(self, isolation: Isolation) -> str:
        """Return the name of the cache of builds in this isolation."""
        return self.on_host if isolation.is_host else self.isolated


@dataclass(frozen=True, kw_only=True)
class Options(RunChoices):
    """The choices of a command for one of its configs, and the folders of the run.

    ``torch`` is None if it is the version in the config's file.
    """

    config: Config  #: the config to build, with the version ``torch``
    root: Path  #: the repository, or another feedstock
    output: Path  #: folder for states and packages
    cache: Path  #: folder with downloads, objects and channels that configs share
    own: bool = True  #: the feedstock is the repository that the driver belongs to
    earlier: tuple[str, ...] = ()  #: configs that the same command builds first
    pool: PoolMember | None = None  #: the jobs that it shares with configs that are built at the same time

    @property
    def run_name(self) -> str:
        """Name of the state and the published channel: the config's, marked for another PyTorch or a rehearsal."""
        name = self.config.name
        if self.torch:
            name += f"-{self.torch}"
        if self.rehearse:
            name += "-rehearsal"
        return name

    @property
    def cache_name(self) -> str:
        """Name of caches that no other build may write to: the run's, below the name of another feedstock.

        Feedstocks may have configs of the same name.
        """
        if self.own:
            return self.run_name
        root = self.root.resolve()
        return f"{root.name}-{hashlib.sha256(bytes(root)).hexdigest()[:8]}/{self.run_name}"

    @property
    def objects_name(self) -> str:
        """Name of the object cache, which all configs of one feedstock share; rehearsals have one of their own."""
        name = "own" if self.own else self.cache_name.partition("/")[0]
        if self.rehearse:
            name += "-rehearsal"
        return name

    @property
    def objects_names(self) -> CacheNames:
        """Names of the object caches of isolated builds, and of builds on the host.

        An isolated build writes its cache: it may put any object there, which would be linked and run on the host.
        """
        return CacheNames(self.objects_name, f"{self.objects_name}-host")

    @property
    def unpacked_names(self) -> CacheNames:
        """Names of the package caches of isolated builds, and of builds on the host: programs in them are run."""
        return CacheNames(self.cache_name, f"{self.cache_name}-host")

    def unpacked_folder(self, isolation: Isolation) -> Path:
        """The package cache of builds in this isolation."""
        return self.cache / "rattler" / self.unpacked_names.of(isolation)

    def objects_folder(self, isolation: Isolation) -> Path:
        """The object cache of builds in this isolation."""
        return self.cache / "objects" / self.objects_names.of(isolation)

    @property
    def state(self) -> Path:
        """Folder with everything that a later run resumes from."""
        return self.output.absolute() / self.run_name

    def state_inside(self, isolation: Isolation) -> str:
        """Return the state folder's path as builds see it; objects contain it."""
        return isolation.path(f"{INSIDE}/state", self.state)

    @property
    def packages(self) -> Path:
        """The published channel."""
        return self.output.absolute() / "packages" / self.run_name

    @property
    def recipe(self) -> Path:
        return recipe_of(self.root, self.config)

    @property
    def recipes(self) -> Path:
        """The folder of all recipes and the files that they share."""
        return self.root.absolute() / RECIPES


def objects_lock(name: str) -> str:
    """Return the name of an object cache's lock, which no config has."""
    return f"objects/{name}"


def object_cache_program() -> str:
    """Return the program that caches objects, or :data:`NO_OBJECT_CACHE`."""
    return os.environ.get("TORCH_CCACHE", "") or "ccache"
