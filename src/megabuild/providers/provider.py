"""The interface of providers, and the base class of providers that make a channel on this machine."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from groundwork.channel import Channel
from groundwork.errors import ProviderError
from groundwork.machine import machine_platform
from groundwork.network.wheel_contents import noted
from megabuild.configs.config import Config
from megabuild.configs.render import PlannedPackage
from megabuild.isolation.engine import Engine
from megabuild.providers import catalogue
from megabuild.providers.environment import Environment, Pending, ProviderRequest, virtual_gpu
from megabuild.providers.local import compilers, interpreters
from megabuild.providers.local.interpreters import Interpreter
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.local_channel import LocalChannel
from megabuild.providers.pypi import download, lock, nvidia

#: A package of the local channel lies in the cache also unpacked, at about twice its size. A rehearsal's 83 MB of
#: wheels became 482 MB, which includes this machine's Pythons and compilers.
_COPIES = 3
_PYBIND11_ABI = "pybind11-abi"


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a build of PyTorch takes with a provider's features."""

    tree: float  #: GB of a compile's folder
    package: float  #: GB of libtorch's package
    per_python: float  #: GB of each Python's package
    memory: float  #: GB of the largest compile
    hours: float  #: CPU hours of libtorch's compile
    python_hours: float  #: CPU hours of each Python's compile
    tests_hours: float = 0.0  #: CPU hours of PyTorch's own tests for each Python
    one_python_tests_hours: float = 0.0  #: CPU hours of those that only one Python runs
    basis: str  #: source of the figures
    #: the same hours at ``-O0``; None: not measured
    hours_unoptimized: float | None = None
    python_hours_unoptimized: float | None = None

    def unoptimized(self) -> Figures:
        """Return the figures of a build at ``-O0``; without measured hours, these figures."""
        if self.hours_unoptimized is None or self.python_hours_unoptimized is None:
            return self
        return replace(self, hours=self.hours_unoptimized, python_hours=self.python_hours_unoptimized)


@dataclass(frozen=True)
class Provider(ABC):
    """Makes the build environment of one run; its class variables say what is built from it, and how."""

    #: The engines of a build unless another is requested, the best first.
    engines: ClassVar[tuple[Engine, ...]] = (Engine.HOST,)
    #: Whether PyTorch is compiled, not unpacked from official wheels.
    compiles: ClassVar[bool] = True
    #: Whether a source of the user's own needs all submodules; other providers have most of them as libraries.
    needs_submodules: ClassVar[bool] = False
    #: Whether it also has nightly versions of PyTorch.
    has_nightlies: ClassVar[bool] = False
    #: Whether upstream's wheels of the extensions fit its PyTorch.
    fits_extension_wheels: ClassVar[bool] = True
    #: Whether its channels have PyTorch for this machine, which cross builds of the extensions run.
    has_native_pytorch: ClassVar[bool] = False
    #: Without figures a plan has no estimate.
    cpu_figures: ClassVar[Figures | None] = None
    cuda_figures: ClassVar[Figures | None] = None

    request: ProviderRequest

    def survey(self) -> Environment:
        """Return the environment as far as it is known before anything is made; at most metadata is downloaded.

        Raises ProviderError: The environment cannot be made.
        """
        return self.provide()

    @abstractmethod
    def provide(self) -> Environment:
        """Return the environment, after making or downloading its missing parts.

        Raises ProviderError: The environment cannot be made.
        """


class LocalProvider(Provider):
    """Makes a channel from this machine's programs and from wheels."""

    @abstractmethod
    def environment(self, *, survey: bool) -> Environment:
        """Return the environment; for a survey, with an index of the channel in its place."""

    def survey(self) -> Environment:
        """Return the environment with an index of its channel, which a solver can use."""
        return self.environment(survey=True)

    def provide(self) -> Environment:
        """Return the environment with its channel."""
        return self.environment(survey=False)

    def interpreters(self) -> dict[str, Interpreter]:
        """Return this machine's interpreters for the Pythons of the config, else of its packages' requirements.

        If these name no Python either, the result is the newest interpreter.

        Raises ProviderError: This machine has none of the Pythons, or the config is for another platform.
        """
        config = self.request.config
        here = machine_platform()
        if config.platform != here or here not in compilers.MACHINES:
            raise ProviderError(
                f"{config.name}: built on {config.platform} only; this machine is {here}",
                f"build this config on a {config.platform} machine or in its container image",
            )
        named = config.pythons or self._named_pythons()
        if named:
            return interpreters.some_of(named, self.request.report)
        installed = interpreters.find(self.request.report)  # no package names a Python: any will do
        newest = list(installed.items())[-1:]
        return dict(newest)

    def _named_pythons(self) -> tuple[str, ...]:
        """Return the Pythons that the packages' requirements name."""
        pythons: list[str] = []
        for need in requirements(self.request.planned):
            if match := re.match(r"python\s*=*(3\.\d+)", need):
                pythons.append(match[1])
        return tuple(pythons)

    def nvidia(
        self,
        needs: Sequence[str],
        python: Interpreter,
        *,
        survey: bool,
        dependencies: bool = True,
        more: Sequence[str] = (),
    ) -> list[LocalPackage]:
        """Resolve, download and describe NVIDIA's wheels; a survey downloads only wheels of unknown content."""
        config = self.request.config
        wheels = self.request.cache / "wheels"
        locks = wheels / "locks"
        resolved = lock.resolve(needs, python, locks, dependencies=dependencies, more=more)
        unknown = [wheel for wheel in resolved.wheels if not survey or noted(locks, wheel.sha256) is None]
        download.download(unknown, wheels, self.request.report, more=more)
        table = catalogue.load().nvidia
        return nvidia.packages(resolved, wheels, table, config.cuda_version or "", config.platform, locks)

    def needed_pythons(self, available: Iterable[str], base: str) -> tuple[str, ...]:
        """Return the available Pythons that this run's packages need; staging needs ``base``."""
        asked = {package.python for package in self.request.planned}
        if "torch_python_base" in self.request.config.variant:
            asked.add(base)
        return tuple(python for python in available if python in asked)

    def of_channel(
        self,
        channel: LocalChannel,
        pythons: Iterable[str],
        values: Mapping[str, str],
        absent: Mapping[str, int] = MappingProxyType({}),
    ) -> Environment:
        """Return the environment with a channel, for some Pythons, with variant ``values``.

        It overrides the config's values that its compiler and packages determine. It is pending until the channel is
        complete, and no wheels are ``absent`` (sizes by sha256).
        """
        found = {
            "c_compiler_version": channel.toolchain.major,
            "cxx_compiler_version": channel.toolchain.major,
            "c_stdlib_version": channel.toolchain.glibc,
        }
        for package in channel.packages:
            if package.name == _PYBIND11_ABI:
                found["pybind11_abi"] = package.version
        overrides = self.overrides({**found, **values})
        notes: list[str] = []
        if overrides and not self.request.rehearsal:
            notes.append(f"differs from the config: {self._differences(overrides)}")
        if channel.by_name:
            names = ", ".join(channel.by_name)
            notes.append(f"not in the catalogue, taken from pip's indexes by name: {names}")
        return Environment(
            channels=(Channel.of_folder(channel.path, this_machine=True),),
            pythons=tuple(pythons),
            overrides=overrides,
            virtual_packages=virtual_gpu(self.request.config),
            notes=tuple(notes),
            stand_ins=channel.stand_ins,
            programs=frozenset(each.path for each in channel.packages if each.starts_programs),
            pending=self._pending(channel, absent),
        )

    def _differences(self, overrides: Mapping[str, tuple[str, ...]]) -> str:
        differences: list[str] = []
        for key, (value,) in overrides.items():
            former = ", ".join(self.request.config.variant[key])
            differences.append(f"{key} {value} (not {former})")
        return "; ".join(differences)

    def _pending(self, channel: LocalChannel, absent: Mapping[str, int]) -> Pending | None:
        """Return the packages of ``channel`` and the ``absent`` wheels that a run must still get, if there are any."""
        folder = self.request.cache / "wheels"
        to_pack: dict[str, int] = {}  # sizes of wheels, by sha256
        to_download = dict(absent)
        for package in channel.missing:
            wheel = package.inputs.get("wheel")
            if wheel is None:
                continue
            to_pack[wheel] = package.size
            if not any((folder / wheel[:16]).glob("*.whl")):
                to_download[wheel] = package.size
        if channel.ready and not to_download:
            return None
        download_size = sum(to_download.values())
        return Pending(
            wheels=len(to_download),
            download=download_size,
            bytes=download_size + _COPIES * sum(to_pack.values()),
            packages=len(channel.missing),
            sources=len(absent),
        )

    def overrides(self, values: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Return the values that differ from the config's, by variant key."""
        variant = self.request.config.variant
        differing: dict[str, tuple[str, ...]] = {}
        for key, value in values.items():
            if key in variant and set(variant[key]) != {value}:
                differing[key] = (value,)
        return differing


def base_python(config: Config, pythons: Iterable[str]) -> str:
    """Return the Python for the build of libtorch: the config's, else the newest available one with a GIL."""
    named = config.variant.get("torch_python_base", ("",))[0]
    usable = [python for python in pythons if not python.endswith("t")] or list(pythons)
    if named in usable or not usable:
        return named
    return usable[-1]


def requirements(planned: Sequence[PlannedPackage]) -> list[str]:
    """Return all requirements of building and testing the packages, except the packages themselves."""
    return sorted({*build_requirements(planned), *host_requirements(planned)})


def build_requirements(planned: Sequence[PlannedPackage]) -> list[str]:
    """Return the requirements of build environments, which have programs for the machine that compiles."""
    needs: set[str] = set()
    for package in planned:
        needs.update(package.staging_build, package.build)
    return _of_others(needs, planned)


def host_requirements(planned: Sequence[PlannedPackage]) -> list[str]:
    """Return the requirements of all other environments, which are for the packages' platform."""
    needs: set[str] = set()
    for package in planned:
        needs.update(package.staging_host, package.host, package.run, package.test)
    return _of_others(needs, planned)


def _of_others(needs: Iterable[str], planned: Iterable[PlannedPackage]) -> list[str]:
    """Return the needs that the packages themselves do not meet, sorted."""
    own = {package.name for package in planned}
    return sorted(need for need in needs if _name(need) not in own)


def _name(need: str) -> str:
    """Return the name of a required package."""
    return re.split(r"[\s=<>!~\[]", need.strip())[0]
