"""A plan: what a run will do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from megabuild.configs.config import Config, python_version
from megabuild.configs.overrides import chosen
from megabuild.configs.render import PlannedPackage
from megabuild.extensions.table import find
from megabuild.plan.estimate import Estimate
from megabuild.plan.fingerprint import Fingerprint
from megabuild.plan.options import Options
from megabuild.plan.stamp import Decision
from megabuild.providers.environment import Environment
from megabuild.resources.jobs import Jobs


@dataclass(frozen=True, kw_only=True)
class PlanItem:
    """One package of a plan.

    Parameters
    ----------
    fingerprint:
        sha256 over what it depends on.
    exists:
        It is published, verified, and made from the same inputs.
    """

    package: PlannedPackage
    fingerprint: str = ""
    exists: bool = False


@dataclass(frozen=True, kw_only=True)
class Task:
    """One extension for one Python.

    Parameters
    ----------
    extension:
        Name of its folder below ``recipe/pyg``.
    python:
        ``3.12``, or None for a package that serves all Pythons.
    recipe:
        The recipe file.
    items:
        What it makes.
    overrides:
        Variant values in place of the config's: one Python among them.
    wheel:
        A verified wheel to repackage, or None to compile.
    how:
        ``compile``, ``repackage``, or ``nothing`` where only a wheel was allowed and none fits.
    reason:
        Why so.
    needs:
        Names of tasks whose packages must be there first, to build it or to test it.
    archs:
        Number of GPU architectures that it is compiled for; 0 for the CPU.
    """

    extension: str
    python: str | None
    recipe: Path
    items: tuple[PlanItem, ...]
    overrides: Mapping[str, tuple[str, ...]]
    wheel: Path | None = None
    how: str = "compile"
    reason: str = ""
    needs: tuple[str, ...] = ()
    archs: int = 0

    @property
    def name(self) -> str:
        """Name of its state folder and in messages: ``pytorch_scatter-py312``, ``pyg-lib-abi3``."""
        return f"{self.extension}-{'py' + self.python.replace('.', '') if self.python else 'abi3'}"

    @property
    def packages(self) -> tuple[PlannedPackage, ...]:
        """What it makes, nearly always one."""
        return tuple(item.package for item in self.items)

    @property
    def exists(self) -> bool:
        """All packages are there."""
        return all(item.exists for item in self.items)

    @property
    def base_python(self) -> str:
        """The Python that it is built with."""
        return python_version(self.overrides["python"][0])

    @property
    def cpu_seconds(self) -> int:
        """What compiling takes, roughly; wheels are only unpacked."""
        return find(self.extension).cpu_seconds(self.archs) if self.how == "compile" else 10


@dataclass(frozen=True, kw_only=True)
class Extensions:
    """The extensions' part of a plan.

    Parameters
    ----------
    tasks:
        In the order of their names.
    reason:
        Why there are none.
    left_out:
        Extensions that are not built for this config, with the reason.
    """

    tasks: tuple[Task, ...] = ()
    reason: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def missing(self) -> tuple[Task, ...]:
        """Tasks still to be done."""
        return tuple(task for task in self.tasks if not task.exists)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run will do.

    Parameters
    ----------
    options:
        What was asked for.
    items:
        PyTorch's packages in build order.
    left_out:
        Pythons of the config that cannot be built here, with the reason.
    environment:
        What the provider made ready; its overrides with those that were asked for.
    staging:
        Everything that libtorch's compile depends on; its digest is the salt of the engine's staging cache.
    staging_decision:
        What becomes of the former compile.
    extensions:
        PyTorch Geometric's extensions, or why there are none.
    notes:
        Sentences for the user.
    jobs:
        Compile jobs at once.
    estimate:
        What the build will want.
    """

    options: Options
    items: tuple[PlanItem, ...]
    left_out: Mapping[str, str]
    environment: Environment
    staging: Fingerprint
    staging_decision: Decision
    extensions: Extensions = field(default_factory=Extensions)
    notes: tuple[str, ...] = ()
    jobs: Jobs = field(default_factory=lambda: Jobs(count=1, reason=""))
    estimate: Estimate = field(default_factory=Estimate)

    @property
    def missing(self) -> tuple[PlannedPackage, ...]:
        """PyTorch's packages still to be built."""
        return tuple(item.package for item in self.items if not item.exists)

    @property
    def overrides(self) -> Mapping[str, tuple[str, ...]]:
        """Variant values in place of the config's."""
        return self.environment.overrides

    @property
    def config(self) -> Config:
        """The config with everything that was chosen for this run."""
        return chosen(self.options.config, self.overrides)

    @property
    def every(self) -> tuple[PlanItem, ...]:
        """PyTorch's packages in build order, then the extensions'."""
        return (*self.items, *(item for task in self.extensions.tasks for item in task.items))
