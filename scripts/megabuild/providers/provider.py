"""The interface of providers, and what those that make a channel on this machine share."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from groundwork.errors import ProviderError
from groundwork.network.wheel_contents import noted
from groundwork.progress import Notes
from megabuild.configs.config import Config
from megabuild.configs.render import PlannedPackage
from megabuild.providers import catalogue
from megabuild.providers.environment import Download, Environment, machine_platform
from megabuild.providers.local import compilers, interpreters
from megabuild.providers.local.interpreters import Interpreter
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.local_channel import LocalChannel
from megabuild.providers.pypi import download, lock, nvidia


class Preparation(TypedDict):
    """Of an environment: what is left to be made."""

    downloads: tuple[Download, ...]
    ready: bool
    to_make: int
    to_pack: int


@dataclass(frozen=True, kw_only=True)
class ProviderRequest:
    """What a run needs of its provider."""

    config: (
        Config  #: its provider decides; rehearsals take the local channel, but for another machine Debian's
    )
    planned: Sequence[
        PlannedPackage
    ]  #: the rendered packages: what they require is what the channel must have
    cache: Path  #: folder for everything that is kept, shared by all configs
    report: Notes  #: gets a line for each step, and how far it is
    rehearsal: bool = False  #: empty packages may stand in for what this machine does not have
    #: for a plan only: almost nothing is made or downloaded
    plan: bool = False


@dataclass(frozen=True)
class Provider(ABC):
    """Makes the build environment of one run."""

    request: ProviderRequest

    @abstractmethod
    def provide(self) -> Environment:
        """Return the environment, making or fetching what is missing.

        Raises ProviderError: With what to do about it.
        """


class LocalProvider(Provider):
    """Makes a channel from this machine's programs and from wheels."""

    def interpreters(self) -> dict[str, Interpreter]:
        """Return those of the config's Pythons that this machine has; where it names none, those that packages ask for.

        Raises ProviderError: It has none, or the config is for another platform.
        """
        config, here = self.request.config, machine_platform()
        if config.platform != here or here not in compilers.MACHINES:
            raise ProviderError(
                f"the local channel serves {here}, not {config.platform}",
                "Build this config on such a machine, or in its container image.",
            )
        asked = (re.match(r"python\s*=*(3\.\d+)", need) for need in requirements(self.request.planned))
        named = config.pythons or tuple(match[1] for match in asked if match)
        if named:
            return interpreters.some_of(named, self.request.report)
        found = interpreters.find(self.request.report)  # any serves those that need one, and tools
        return dict([*found.items()][-1:])

    def nvidia(
        self,
        needs: Sequence[str],
        python: Interpreter,
        *,
        dependencies: bool = True,
        more: Sequence[str] = (),
    ) -> tuple[lock.Lock, list[LocalPackage]]:
        """Resolve, download (for a plan only wheels of unknown content) and describe NVIDIA's wheels."""
        request, wheels = self.request, self.request.cache / "wheels"
        locks = wheels / "locks"
        found = lock.resolve(needs, python, locks, dependencies=dependencies, more=more)
        files = download.download(
            [found],
            wheels,
            request.report,
            only=lambda wheel: not request.plan or noted(locks, wheel.sha256) is None,
            more=more,
        )
        cuda, table = request.config.cuda_version or "", catalogue.load().nvidia
        return found, nvidia.packages(found, files, table, cuda, request.config.platform, locks)

    def needed_pythons(self, found: Iterable[str], base: str) -> tuple[str, ...]:
        """Return those Pythons, of all that were found, that packages of this run are made for, or staging with."""
        asked = {package.python for package in self.request.planned if not package.skipped}
        asked |= {base} if "torch_python_base" in self.request.config.variant else set()
        return tuple(python for python in found if python in asked)

    def to_prepare(self, made: LocalChannel, *locks: lock.Lock) -> Preparation:
        """Return what the run of a plan would download and make first."""
        left = {**made.pending, **download.pending(locks, self.request.cache / "wheels")}
        sizes = {wheel.sha256: wheel.size for lock in locks for wheel in lock.wheels}
        packed = sum(size or sizes.get(sha256, 0) for sha256, size in made.unpacked.items())
        wheels = Download(what="wheels", count=len(left), size=sum(left.values()))
        downloads = (wheels,) if left else ()
        return {
            "downloads": downloads,
            "ready": made.ready and not downloads,
            "to_make": 0 if made.ready and not left else wheels.size + packed,
            "to_pack": made.to_pack,
        }

    def overrides(self, values: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Return those variant keys whose values in the config are others."""
        variant = self.request.config.variant
        return {
            key: (value,) for key, value in values.items() if key in variant and set(variant[key]) != {value}
        }

    def notes(self, overrides: Mapping[str, Sequence[str]]) -> list[str]:
        """Return a sentence on the values that differ from the config's, if any do."""
        variant = self.request.config.variant
        differing = (
            f"{key} {', '.join(values)} (not {', '.join(variant[key])})" for key, values in overrides.items()
        )
        return [f"differs from the config: {'; '.join(differing)}"] if overrides else []


def base_python(config: Config, pythons: Iterable[str]) -> str:
    """Return the Python that libtorch is made with: the config's, or the newest available one with a GIL."""
    wanted = config.variant.get("torch_python_base", ("",))[0]
    usable = [python for python in pythons if not python.endswith("t")] or list(pythons)
    return wanted if wanted in usable or not usable else usable[-1]


def machine_values(made: LocalChannel, needs: Iterable[str]) -> dict[str, str]:
    """Return the variant values that follow from a channel's compiler and packages."""
    compiler, glibc = made.toolchain.major, made.toolchain.glibc
    values = {"c_compiler_version": compiler, "cxx_compiler_version": compiler, "c_stdlib_version": glibc}
    if "pybind11-abi" in map(_name, needs):
        values["pybind11_abi"] = next(
            record.version for record in made.records if record.name == "pybind11-abi"
        )
    return values


def requirements(planned: Iterable[PlannedPackage]) -> list[str]:
    """Return everything that building and testing the packages installs, without the packages themselves."""
    chosen = [package for package in planned if not package.skipped]
    own = {package.name for package in chosen}
    needs: set[str] = set()
    for package in chosen:
        needs.update(
            package.staging_build,
            package.staging_host,
            package.build,
            package.host,
            package.run,
            package.test,
        )
    return sorted(need for need in needs if _name(need) not in own)


def _name(need: str) -> str:
    return re.split(r"[\s=<>!~\[]", need.strip(), maxsplit=1)[0]
