"""Plans PyTorch Geometric's extensions: which, for which Pythons, compiled or repackaged, and why."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from groundwork.errors import PreflightError
from groundwork.files import sha256
from groundwork.keys import Key
from groundwork.network.index import PYG_INDEX
from groundwork.progress import Notes
from megabuild.configs.config import Config, python_version
from megabuild.configs.overrides import chosen
from megabuild.configs.render import PlannedPackage, render
from megabuild.plan.fingerprint import tree
from megabuild.plan.options import Options
from megabuild.plan.plan import Method, PlanItem, Task
from megabuild.plan.run_choices import PygMode
from megabuild.plan.solving import Solver
from megabuild.plan.upstream_tests import PACKAGE
from megabuild.providers.environment import Environment
from megabuild.providers.select import provider_of
from pyg_extensions import sources
from pyg_extensions.find_wheel import Choice, WheelRequirements, find_wheel
from pyg_extensions.pyg_index import PygIndex, WheelTarget
from pyg_extensions.table import archs_of, find, recipes, release

Overrides = Mapping[str, tuple[str, ...]]

_PER_PYTHON = re.compile(r"(?:^|_)py\d+t?(?:_|$)")


@dataclass(frozen=True, kw_only=True)
class ExtensionInputs(Key):
    """Everything that an extension's packages for one Python depend on."""

    recipe: str  #: hash over the recipe's folder
    common: str  #: hash over the folder that the extensions' recipes share
    planned: Sequence[Mapping[str, Any]]  #: names and requirements of the packages
    torch: Mapping[str, str]  #: fingerprints of the PyTorch that it is built against, by file name
    wheel: str  #: sha256 of the wheel that is repacked, or empty
    sources: Sequence[str]  #: hashes over local folders of sources that are compiled
    environments: Sequence[Sequence[str]]  #: of each package: the packages that it is built and tested with


@dataclass(frozen=True, kw_only=True)
class Making:
    """The way to make an extension's packages, and why."""

    method: Method
    reason: str
    wheel: Path | None = None  #: to repackage


@dataclass(frozen=True, kw_only=True)
class ExtensionPlanner:
    """Plans a run's extensions: first the packages, for the provider, then the tasks, in the provider's environment."""

    options: Options
    reason: str  #: why the run builds none, or empty
    wanted: tuple[str, ...]  #: the requested extensions
    recipes: Mapping[str, Path]  #: by extension; includes extensions that a wanted one may need
    sources: sources.Sources  #: for these recipes

    @classmethod
    def find(cls, options: Options, report: Notes) -> ExtensionPlanner:
        """Find the recipes and sources of the requested extensions.

        Raises UsageError: An extension or a source folder does not exist.
        """
        config = options.config
        available = recipes(options.root)
        named = {find(name).conda for name in options.extensions}
        wanted = tuple(name for name in available if not named or name in named)
        reason = why_not(config, pyg=options.pyg, rehearse=options.rehearse)
        if not config.torch_version and not available:
            reason = ""  # the plan of another recipe does not speak of extensions
        elif not available:
            reason = reason or "no recipes in recipe/pyg"
        if reason or not available:
            return cls(options=options, reason=reason, wanted=wanted, recipes={}, sources=sources.Sources())
        report("looking for the extensions' sources")
        found_sources = sources.find(available, config.variant, options.pyg_sources, options.cache)
        return cls(options=options, reason="", wanted=wanted, recipes=available, sources=found_sources)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the plan."""
        notes: dict[str, None] = {}
        for extension, note in self.sources.notes.items():
            if note and extension in self.wanted:
                notes[note] = None
        return tuple(notes)

    def render(self, overrides: Overrides) -> list[Task]:
        """Render the wanted extensions, and all that these need to be built or tested."""
        values = {**overrides, **self.sources.overrides}
        tasks: list[Task] = []
        for name, recipe in self.recipes.items():
            tasks += render_tasks(self.options.config, name, recipe, values)
        needs = _needs(tasks)
        kept = set[str]()
        queue = [task.name for task in tasks if task.extension in self.wanted]
        while queue:
            name = queue.pop()
            if name not in kept:
                kept.add(name)
                queue += needs[name]
        return [task for task in tasks if task.name in kept]

    def fetches_sources(self, rendered: Iterable[Task]) -> bool:
        """Return whether a task's build may fetch sources from a server, if no wheel takes its place."""
        return any(task.extension in self.sources.remote for task in rendered)

    def plan(self, environment: Environment, pytorch: Sequence[PlanItem], report: Notes) -> tuple[Task, ...]:
        """Return the tasks of a plan, for PyTorch's packages in an environment."""
        config = chosen(self.options.config, environment.overrides)
        rendered = self.render(environment.overrides)
        own = [*packages_of(rendered), *(item.package for item in pytorch)]
        solver = Solver(environment, config.platforms, own)
        index = PygIndex(self.options.pyg_index or PYG_INDEX)
        needs = _needs(rendered)
        tasks = []
        for task in rendered:
            making = self._choose(task, config, index, report)
            environments: list[list[str]] = []
            try:
                environments = [solver.built_with(package) for package in task.packages]
            except PreflightError as error:
                making = Making(method=Method.NOTHING, reason=error.message)
            fingerprint = self.inputs(task, making.wheel, pytorch, environments).digest
            planned = replace(
                task,
                items=tuple(PlanItem(package=package, fingerprint=fingerprint) for package in task.packages),
                needs=needs[task.name],
                method=making.method,
                reason=making.reason,
                wheel=making.wheel,
            )
            tasks.append(planned)
        return tuple(tasks)

    def _choose(self, task: Task, config: Config, index: PygIndex, report: Notes) -> Making:
        choice = Choice(wheel=None, reason="requested with --pyg source")
        if self.options.pyg is not PygMode.SOURCE:
            choice = choose_wheel(task, config, self.options, index, report)
        return choose_method(choice, self.options.pyg, self.sources.left_out.get(task.extension, ""))

    def inputs(
        self, task: Task, wheel: Path | None, pytorch: Sequence[PlanItem], environments: list[list[str]]
    ) -> ExtensionInputs:
        """Collect the inputs of a task, for PyTorch's packages; ``environments`` are those of its packages."""
        against = {}
        for item in pytorch:
            package = item.package
            # another selection of PyTorch's own tests changes no extension
            if package.python in (None, task.base_python) and package.name != PACKAGE:
                against[item.file_name] = item.fingerprint
        folder = self.sources.folders.get(task.extension)
        common = task.recipe.parent.parent / "common"
        return ExtensionInputs(
            recipe=tree(task.recipe.parent),
            common=tree(common) if common.is_dir() else "",
            planned=[package.facts for package in task.packages],
            torch=against,
            wheel=sha256(wheel) if wheel else "",
            sources=[tree(folder)] if folder and not wheel else [],
            environments=environments,
        )


def why_not(config: Config, *, pyg: PygMode, rehearse: bool) -> str:
    """Return why a run builds no extensions, or an empty string if it builds them."""
    if pyg is PygMode.NONE:
        return "left out (--pyg none)"
    if rehearse:
        return "left out: they need a real PyTorch, not a rehearsal"
    if not config.platform.startswith("linux"):
        return f"left out: built for Linux only, not for {config.platform}"
    if config.platforms.is_cross and not provider_of(config).has_native_pytorch:
        return (
            f"left out: their compile runs a PyTorch for {config.build_platform}, and {config.provider} has none;"
            f" compile them on a {config.platform} machine"
        )
    if not provider_of(config).fits_extension_wheels and pyg is not PygMode.SOURCE:
        return f"left out: no wheels fit the PyTorch of {config.provider} (--pyg source compiles them)"
    return ""


def choose_method(choice: Choice, mode: PygMode, lacking: str) -> Making:
    """Return how a task is made, and why: from a wheel if one fits, else from its sources.

    ``lacking`` is the reason for missing sources, or empty.
    """
    if choice.wheel is not None:
        return Making(method=Method.REPACKAGE, reason=choice.reason, wheel=choice.wheel)
    if mode is PygMode.PREBUILT:
        return Making(method=Method.NOTHING, reason=choice.reason)
    if lacking:
        return Making(method=Method.NOTHING, reason=lacking)
    return Making(method=Method.COMPILE, reason=choice.reason)


def choose_wheel(task: Task, config: Config, options: Options, index: PygIndex, report: Notes) -> Choice:
    """Look for a task's prebuilt wheel; ``config`` already has this run's overrides."""
    target = WheelTarget(
        python=task.base_python,
        torch_version=config.torch_version,
        cuda_version=config.cuda_version,
        platform=config.platform,
        glibc=config.variant.get("c_stdlib_version", ("2.28",))[0],
    )
    extension = find(task.extension)
    requirements = WheelRequirements(extension=extension, target=target, archs=archs_of(config.variant))
    version = release(extension, config.variant).version
    return find_wheel(requirements, version, index=index, cache=options.cache, report=report)


def render_tasks(config: Config, extension: str, recipe: Path, overrides: Overrides) -> tuple[Task, ...]:
    """Render one extension's recipe with variant values in place of the config's, ``python`` among them.

    Returns no tasks if the recipe skips this config.
    """
    pythons = [python_version(pin) for pin in overrides["python"]]
    values = dict(overrides)
    if "is_python_min" in config.variant:
        # a package for all Pythons is built with the lowest one
        values["is_python_min"] = ("true", *["false"] * (len(pythons) - 1))
    archs = 0
    if config.cuda_version:
        archs = len(archs_of({**config.variant, **overrides}))
    tasks = []
    for python, items in _items_by_python(config, recipe, values).items():
        base = python or items[0].package.python
        row = pythons.index(base) if base in pythons else 0
        own = {key: values[key][row : row + 1] for key in values.keys() & {"python", "is_python_min"}}
        task = Task(
            extension=extension,
            python=python,
            recipe=recipe,
            items=tuple(items),
            archs=archs,
            overrides={**values, **own},
        )
        tasks.append(task)
    return tuple(tasks)


def _items_by_python(config: Config, recipe: Path, values: Overrides) -> dict[str | None, list[PlanItem]]:
    """Render a recipe's packages, by Python; by None if a package serves all Pythons."""
    items = defaultdict[str | None, list[PlanItem]](list)
    for package in render(config, recipe, overrides=values, build_platform=config.build_platform):
        serves_one = _PER_PYTHON.search(package.build_string)
        items[package.python if serves_one else None].append(PlanItem(package=package))
    return items


def packages_of(tasks: Iterable[Task]) -> list[PlannedPackage]:
    """Return the packages of tasks; the provider must have all that these require."""
    packages: list[PlannedPackage] = []
    for task in tasks:
        packages += task.packages
    return packages


def _needs(tasks: Sequence[Task]) -> dict[str, tuple[str, ...]]:
    """Return for each task, by name, the tasks that it needs to be built or tested."""
    makers: dict[tuple[str, str | None], str] = {}
    for task in tasks:
        for package in task.packages:
            makers[package.name, task.python] = task.name
    return {task.name: _makers_for(task, makers) for task in tasks}


def _makers_for(task: Task, makers: Mapping[tuple[str, str | None], str]) -> tuple[str, ...]:
    """Return the other tasks that make a task's requirements, for its Python or for all."""
    needs: dict[str, None] = {}
    for package in task.packages:
        for spec in (*package.build, *package.host, *package.run, *package.test):
            name = re.split(r"[ =<>!~]", spec, maxsplit=1)[0]
            maker = makers.get((name, task.python)) or makers.get((name, None))
            if maker and maker != task.name:
                needs[maker] = None
    return tuple(needs)
