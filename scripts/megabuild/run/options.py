"""What a user can ask of one run, and the plan that comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from megabuild.configs.config import Config
from megabuild.configs.render import PlannedPackage
from megabuild.providers.environment import Environment
from megabuild.resources.estimate import Estimate
from megabuild.run.fingerprint import Fingerprint
from megabuild.run.pyg.tasks import Extensions
from megabuild.run.stamp import Decision


@dataclass(frozen=True, kw_only=True)
class Options:
    """The choices of one run.

    Parameters
    ----------
    config:
        What to build.
    root:
        The repository.
    output:
        Folder for states and packages.
    rehearse:
        Build the scaled model in place of PyTorch, for the Pythons that exist here.
    pythons:
        Narrow to these (``3.12``); empty for all of the config.
    engine:
        Isolation by name, or None for the one that fits.
    keep_going:
        Go on with other packages where one fails.
    optimization:
        ``0`` or ``2`` in place of the config's.
    cpu_count:
        Compile jobs, or None for what cores and memory allow.
    skip_tests:
        Do not run the packages' own tests; such packages are not published.
    debug:
        Keep the work folders of finished packages.
    up_to:
        Build only up to this output.
    cache:
        Folder for what configs share, or None for the user's cache folder (or ``MEGABUILD_CACHE``).
    pyg:
        PyTorch Geometric's extensions: ``auto`` (a wheel where one fits, else compile), ``source``, ``prebuilt``, or
        ``none``.
    pyg_index:
        Where wheels of extensions are looked for: URL or folder; None for the official index.
    pyg_sources:
        Folder or URL with the extensions' source archives, or None for PyPI's.
    extensions:
        Only these extensions, and what they need; empty for all.
    arch_list:
        CUDA architectures in place of the config's.
    memory:
        Most bytes that compilers of extensions may take together, or None for all that is free.
    torch:
        Version of PyTorch in place of the one in the config's file, which ``config`` has already; None for that one.
    torch_source:
        Folder or tarball with PyTorch's source in place of the provider's.
    torch_sha256:
        Of that tarball, or of the official one of that version.
    """

    config: Config
    root: Path
    output: Path
    rehearse: bool = False
    pythons: tuple[str, ...] = ()
    engine: str | None = None
    keep_going: bool = False
    optimization: str | None = None
    cpu_count: int | None = None
    skip_tests: bool = False
    debug: bool = False
    up_to: str | None = None
    cache: Path | None = None
    pyg: str = "auto"
    pyg_index: str | None = None
    pyg_sources: str | None = None
    extensions: tuple[str, ...] = ()
    arch_list: str | None = None
    memory: int | None = None
    torch: str | None = None
    torch_source: Path | None = None
    torch_sha256: str | None = None

    @property
    def run_name(self) -> str:
        """The config's name, marked for another PyTorch or a rehearsal: names the state and the published channel."""
        name = f"{self.config.name}-{self.torch}" if self.torch else self.config.name
        return f"{name}-rehearsal" if self.rehearse else name

    @property
    def state(self) -> Path:
        """Folder of everything that a later run continues from."""
        return self.output.absolute() / self.run_name

    @property
    def packages(self) -> Path:
        """The published channel."""
        return self.output.absolute() / "packages" / self.run_name

    @property
    def recipe(self) -> Path:
        """The recipe file."""
        return self.root.absolute() / "recipe" / "recipe.yaml"


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
