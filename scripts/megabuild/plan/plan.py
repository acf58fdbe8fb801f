"""A plan: what a run will do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from megabuild.configs.config import Config
from megabuild.configs.overrides import chosen
from megabuild.configs.render import PlannedPackage
from megabuild.plan.estimate import Estimate
from megabuild.plan.fingerprint import Fingerprint
from megabuild.plan.options import Options
from megabuild.plan.stamp import Decision
from megabuild.plan.task import Extensions
from megabuild.providers.environment import Environment


@dataclass(frozen=True, kw_only=True)
class PlanItem:
    """One package of a plan and whether it is there already."""

    package: PlannedPackage
    #: published, verified, and made from the same inputs
    exists: bool


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run will do.

    Parameters
    ----------
    options:
        What was asked for.
    items:
        Packages in build order.
    left_out:
        Pythons of the config that cannot be built here, with the reason.
    overrides:
        Variant values in place of the config's.
    environment:
        What the provider made ready.
    estimate:
        What the build will want.
    staging:
        Everything that libtorch's compile depends on.
    staging_decision:
        What becomes of the former compile.
    package_fingerprints:
        By file name: sha256 over what the package depends on.
    notes:
        Sentences for the user.
    extensions:
        PyTorch Geometric's extensions, or why there are none.
    """

    options: Options
    items: tuple[PlanItem, ...]
    left_out: Mapping[str, str]
    overrides: Mapping[str, tuple[str, ...]]
    environment: Environment
    estimate: Estimate
    staging: Fingerprint
    staging_decision: Decision
    package_fingerprints: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    extensions: Extensions = field(default_factory=Extensions)

    @property
    def staging_fingerprint(self) -> str:
        """sha256 over everything that libtorch's compile depends on: the salt of the engine's staging cache."""
        return self.staging.digest

    @property
    def missing(self) -> tuple[PlannedPackage, ...]:
        """Packages still to be built."""
        return tuple(item.package for item in self.items if not item.exists)

    @property
    def config(self) -> Config:
        """The config with everything that was chosen for this run."""
        return chosen(self.options.config, self.overrides)

    @property
    def fingerprints(self) -> dict[str, str]:
        """By file name of every package: sha256 over what it depends on."""
        extensions = {
            package.file_name: task.fingerprint for task in self.extensions.tasks for package in task.packages
        }
        return {**self.package_fingerprints, **extensions}

    @property
    def packages(self) -> tuple[PlannedPackage, ...]:
        """Every package, PyTorch's in build order and then the extensions'."""
        extensions = (package for task in self.extensions.tasks for package in task.packages)
        return (*(item.package for item in self.items), *extensions)
