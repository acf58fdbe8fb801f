"""A plan of a run, and its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from groundwork.errors import IsolationError
from groundwork.exhaustive import assert_never
from groundwork.files import OLDEST_IN_ZIP
from megabuild.configs.config import Config, python_version
from megabuild.configs.overrides import chosen
from megabuild.configs.render import PlannedPackage
from megabuild.isolation.base import Host, Isolation
from megabuild.plan.fingerprint import Fingerprint
from megabuild.plan.last_run import NO_RUNS, LastRuns
from megabuild.plan.options import Options
from megabuild.providers.environment import Environment
from megabuild.providers.select import provider_of
from pyg_extensions.table import find

_REPACKAGE_SECONDS = 10


@dataclass(frozen=True, kw_only=True)
class PlanItem:
    package: PlannedPackage
    fingerprint: str = ""  #: sha256 over its inputs

    @property
    def file_name(self) -> str:
        """The package's identity."""
        return self.package.file_name


class Method(str, Enum):
    """The way to make an extension's packages."""

    COMPILE = "compile"
    REPACKAGE = "repackage"  #: from a wheel
    NOTHING = "nothing"  #: they cannot be made


@dataclass(frozen=True, kw_only=True)
class Task:
    """One extension for one Python."""

    extension: str  #: name of its folder below ``recipe/pyg``
    python: str | None  #: ``3.12``, or None for a package that serves all Pythons
    recipe: Path  #: the recipe file
    items: tuple[PlanItem, ...]  #: its packages, nearly always one
    #: variant values in place of the config's, with one Python
    overrides: Mapping[str, tuple[str, ...]]
    wheel: Path | None = None  #: a verified wheel to repackage, or None to compile
    method: Method = Method.COMPILE
    reason: str = ""  #: reason for the method
    #: names of tasks whose packages it needs to be built or tested
    needs: tuple[str, ...] = ()
    archs: int = 0  #: number of GPU architectures that it is compiled for; 0 for the CPU

    @property
    def name(self) -> str:
        """Name of its state folder and in messages: ``pytorch_scatter-py312``, ``pyg-lib-abi3``."""
        if self.python is None:
            return f"{self.extension}-abi3"
        return f"{self.extension}-py{self.python.replace('.', '')}"

    @property
    def packages(self) -> tuple[PlannedPackage, ...]:
        return tuple(item.package for item in self.items)

    @property
    def file_names(self) -> list[str]:
        return [item.file_name for item in self.items]

    @property
    def base_python(self) -> str:
        """The Python of its build environment."""
        return python_version(self.overrides["python"][0])

    @property
    def cpu_seconds(self) -> int:
        """Rough CPU time of the compile; a wheel is only unpacked."""
        match self.method:
            case Method.COMPILE:
                return find(self.extension).cpu_seconds(self.archs)
            case Method.REPACKAGE:
                return _REPACKAGE_SECONDS
            case Method.NOTHING:
                return 0
            case never:
                assert_never(never)


@dataclass(frozen=True, kw_only=True)
class NewerPackage:
    """A package of a kept environment that the channels have in another version."""

    name: str
    kept: str  #: version, with the build string if the versions are equal; several with commas
    newest: str


@dataclass(frozen=True, kw_only=True)
class KeptEnvironments:
    """The environments of an earlier run, in which a plan builds."""

    since: float  #: the time at which their packages were the newest, in seconds since 1970
    is_automatic: bool  #: kept because an unfinished run is resumed, not on request
    newer: tuple[NewerPackage, ...]
    unknown: str  #: why the newest packages are unknown, or empty


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The packages of a run and all that they depend on. It never changes; run's ``Progress`` says what exists."""

    options: Options
    items: tuple[PlanItem, ...]  #: PyTorch's packages in build order
    left_out: Mapping[str, str]  #: Pythons of the config that cannot be built here, with the reason
    environment: Environment  #: made by the provider; its overrides include the requested ones
    #: everything that libtorch's compile depends on; its digest is the salt of the engine's staging cache
    staging: Fingerprint
    #: changes since the former staging on which no object depends, so ``staging`` is the former one
    without_effect: tuple[str, ...] = ()
    #: isolation of the builds, or the error that prevents them
    isolation: Isolation | IsolationError = field(default_factory=Host)
    untested: str = ""  #: why this machine cannot test the packages, or empty
    date: int = OLDEST_IN_ZIP  #: date of the files in packages, in seconds since 1970
    extensions: tuple[Task, ...] = ()  #: PyTorch Geometric's extensions, sorted by name
    no_extensions: str = ""  #: why there are none
    notes: tuple[str, ...] = ()  #: notes for the user
    last_runs: LastRuns = NO_RUNS  #: complete runs on this machine for the same options
    shared: str = ""  #: another config whose objects are in the cache
    #: variant values that the provider's environment determined
    provided: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kept: KeptEnvironments | None = None  #: None: the environments have the newest packages

    def usable_isolation(self) -> Isolation:
        """Return the isolation; raises IsolationError if there is none."""
        if isinstance(self.isolation, IsolationError):
            raise self.isolation
        return self.isolation

    @property
    def stages(self) -> bool:
        """Whether the recipe has a staging output, compiled once for several packages."""
        return bool(self.staging.compilers)

    @property
    def staged_name(self) -> str:
        """Name of the staging output: ``libtorch``."""
        for item in self.items:
            if item.package.staging:
                return item.package.staging.removesuffix("-staging")
        return "libtorch"

    @property
    def is_foreign(self) -> bool:
        """Whether the recipe is another one than PyTorch's."""
        return not self.options.config.torch_version

    @property
    def source(self) -> str:
        """The kind of PyTorch's source, such as ``official`` or ``model``; empty for another feedstock's recipe."""
        return self.config.variant.get("torch_source", ("",))[0]

    @property
    def base_python(self) -> str:
        """The Python that libtorch is compiled with; empty for another feedstock's recipe."""
        return self.config.variant.get("torch_python_base", ("",))[0]

    @property
    def has_cuda(self) -> bool:
        """Whether the packages are built for GPUs."""
        return bool(self.config.cuda_version)

    @property
    def compiles_torch(self) -> bool:
        """Whether PyTorch is compiled, not unpacked from wheels."""
        return provider_of(self.options.config).compiles

    @property
    def config(self) -> Config:
        """The config with this run's overrides."""
        return chosen(self.options.config, self.environment.overrides)

    @property
    def all_items(self) -> tuple[PlanItem, ...]:
        """PyTorch's packages in build order, then the extensions'."""
        return (*self.items, *(item for task in self.extensions for item in task.items))

    @property
    def file_names(self) -> list[str]:
        """The file names of all packages."""
        return [item.file_name for item in self.all_items]
