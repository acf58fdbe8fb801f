"""Plans PyTorch Geometric's extensions: which, for which Pythons, compiled or repackaged, and why."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
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
from megabuild.plan.solving import Solver
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
        available, config = recipes(options.root), options.config
        named = {find(name).conda for name in options.extensions}
        wanted = tuple(name for name in available if not named or name in named)
        reason = why_not(config, pyg=options.pyg, rehearse=options.rehearse)
        if not available:  # other recipes than PyTorch's have none, and the plan does not speak of them
            reason = (reason or "no recipes in recipe/pyg") if config.torch_version else ""
        if reason or not available:
            return cls(options=options, reason=reason, wanted=wanted, recipes={}, sources=sources.Sources())
        report("looking for the extensions' sources")
        found_sources = sources.find(available, config.variant, options.pyg_sources, options.cache)
        return cls(options=options, reason="", wanted=wanted, recipes=available, sources=found_sources)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the plan."""
        notes = (note for extension, note in self.sources.notes.items() if extension in self.wanted)
        return tuple(dict.fromkeys(filter(None, notes)))

    def packages(self, overrides: Overrides) -> tuple[PlannedPackage, ...]:
        """Return the extensions' packages, whose requirements the provider must have."""
        return tuple(package for task in self._tasks(overrides) for package in task.packages)

    def plan(self, environment: Environment, pytorch: Sequence[PlanItem], report: Notes) -> tuple[Task, ...]:
        """Return the tasks of a plan, for PyTorch's packages in an environment."""
        options = self.options
        config = chosen(options.config, environment.overrides)
        rendered = self._tasks(environment.overrides)
        own = {package.name for task in rendered for package in task.packages}
        own |= {item.package.name for item in pytorch}
        solver = Solver(environment, config.platform, own)
        index = PygIndex(options.pyg_index or PYG_INDEX)
        needs, tasks = _needs(rendered), []
        for task in rendered:
            choice = Choice(wheel=None, reason="requested with --pyg source")
            if options.pyg != "source":
                choice = choose_wheel(task, config, options, index, report)
            lacking = self.sources.left_out.get(task.extension, "")
            method, reason = choose_method(choice, options.pyg, lacking)
            wheel = choice.wheel
            environments: list[list[str]] = []
            try:
                environments = [solver.built_with(package) for package in task.packages]
            except PreflightError as error:
                method = Method.NOTHING
                reason = error.message
                wheel = None
            fingerprint = self.inputs(task, wheel, pytorch, environments).digest
            items = tuple(PlanItem(package=package, fingerprint=fingerprint) for package in task.packages)
            tasks.append(
                replace(task, items=items, needs=needs[task.name], method=method, reason=reason, wheel=wheel)
            )
        return tuple(tasks)

    def _tasks(self, overrides: Overrides) -> list[Task]:
        """Render the wanted extensions, and all that these need to be built or tested."""
        config, values = self.options.config, {**overrides, **self.sources.overrides}
        rendered = (render_tasks(config, name, recipe, values) for name, recipe in self.recipes.items())
        tasks = [task for several in rendered for task in several]
        needs, kept = _needs(tasks), set[str]()
        queue = [task.name for task in tasks if task.extension in self.wanted]
        while queue:
            name = queue.pop()
            if name not in kept:
                kept.add(name)
                queue += needs[name]
        return [task for task in tasks if task.name in kept]

    def inputs(
        self, task: Task, wheel: Path | None, pytorch: Sequence[PlanItem], environments: list[list[str]]
    ) -> ExtensionInputs:
        """Collect the inputs of a task, for PyTorch's packages; ``environments`` are those of its packages."""
        against = {
            item.package.file_name: item.fingerprint
            for item in pytorch
            if item.package.python in (None, task.base_python)
        }
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


def why_not(config: Config, *, pyg: str, rehearse: bool) -> str:
    """Return why a run builds no extensions, or an empty string if it builds them."""
    if pyg == "none":
        return "left out (--pyg none)"
    if rehearse:
        return "left out: they need a real PyTorch, not a rehearsal"
    if not config.platform.startswith("linux"):
        return f"left out: built for Linux only, not for {config.platform}"
    if not provider_of(config).fits_extension_wheels and pyg != "source":
        return f"left out: no wheels fit the PyTorch of {config.provider} (--pyg source compiles them)"
    return ""


def choose_method(choice: Choice, mode: str, lacking: str) -> tuple[Method, str]:
    """Return how a task is made, and why: from a wheel if one fits, else from its sources.

    ``mode`` is ``auto``, ``source`` or ``prebuilt``; ``lacking`` is the reason for missing sources, or empty.
    """
    if choice.wheel:
        return Method.REPACKAGE, choice.reason
    if mode == "prebuilt":
        return Method.NOTHING, choice.reason
    if lacking:
        return Method.NOTHING, lacking
    return Method.COMPILE, choice.reason


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
    rows, items = dict(values), defaultdict[str | None, list[PlanItem]](list)
    for package in render(config, recipe, overrides=values):
        if not package.skipped:
            own = package.python if _PER_PYTHON.search(package.build_string) else None
            items[own].append(PlanItem(package=package))
    tasks = []
    for python, package_items in items.items():
        base = python or package_items[0].package.python
        row = pythons.index(base) if base in pythons else 0
        for key in values.keys() & {"python", "is_python_min"}:
            values[key] = rows[key][row : row + 1]
        archs = len(archs_of({**config.variant, **overrides})) if config.cuda_version else 0
        task = Task(extension=extension, python=python, recipe=recipe, items=tuple(package_items), archs=archs,
                    overrides=dict(values))  # fmt: skip
        tasks.append(task)
    return tuple(tasks)


def _needs(tasks: Sequence[Task]) -> dict[str, tuple[str, ...]]:
    """Return for each task, by name, the tasks that it needs to be built or tested."""
    makers = {(package.name, task.python): task.name for task in tasks for package in task.packages}
    needs = {}
    for task in tasks:
        names = [
            re.split(r"[ =<>!~]", spec, maxsplit=1)[0]
            for package in task.packages
            for spec in (*package.build, *package.host, *package.run, *package.test)
        ]
        makes = [makers.get((name, task.python)) or makers.get((name, None)) for name in names]
        needs[task.name] = tuple(dict.fromkeys(maker for maker in makes if maker and maker != task.name))
    return needs
