"""Plans PyTorch Geometric's extensions: which, for which Pythons, compiled or repackaged, and why."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from groundwork.errors import PreflightError
from groundwork.files import sha256
from groundwork.network.index import PYG_INDEX
from megabuild.configs.config import Config, python_version
from megabuild.configs.overrides import chosen
from megabuild.configs.render import PlannedPackage, render
from megabuild.plan.fingerprint import digest, tree
from megabuild.plan.options import Options
from megabuild.plan.plan import Extensions, PlanItem, Task
from megabuild.plan.solving import Solver
from megabuild.providers.environment import Environment
from megabuild.providers.select import provider_of
from pyg_extensions import sources
from pyg_extensions.fetch_sources import download
from pyg_extensions.find_wheel import Choice, WheelRequirements, find_wheel
from pyg_extensions.pyg_index import PygIndex, WheelTarget
from pyg_extensions.table import archs_of, find, recipes, release

Overrides = Mapping[str, tuple[str, ...]]
#: Looks for a wheel of an extension for one Python.
WheelChooser = Callable[[str, str], Choice]

#: Reason for no extensions in another feedstock; the plan does not print it.
NO_PYTORCH = "this is not PyTorch's recipe"
_PER_PYTHON = re.compile(r"(?:^|_)py\d+t?(?:_|$)")


@dataclass(frozen=True, kw_only=True)
class ExtensionPlanner:
    """Plans a run's extensions: first the packages, for the provider, then the tasks, in the provider's environment."""

    options: Options
    reason: str  #: why the run builds none, or empty
    wanted: tuple[str, ...]  #: the requested extensions
    recipes: Mapping[str, Path]  #: by extension; includes extensions that a wanted one may need
    sources: sources.Sources  #: for these recipes

    @classmethod
    def find(cls, options: Options, report: Callable[[str], None]) -> ExtensionPlanner:
        """Find the recipes and sources of the requested extensions.

        Raises UsageError: An extension or a source folder does not exist.
        """
        available, config = recipes(options.root), options.config
        named = {find(name).conda for name in options.extensions}
        wanted = tuple(name for name in available if not named or name in named)
        reason = why_not(config, pyg=options.pyg, rehearse=options.rehearse)
        if not available:
            reason = NO_PYTORCH if not config.torch_version else reason or "no recipes in recipe/pyg"
        if reason:
            return cls(options=options, reason=reason, wanted=wanted, recipes={}, sources=sources.Sources())
        report("looking for the extensions' sources")
        get = partial(download, cache=options.cache)
        found_sources = sources.find(available, config.variant, options.pyg_sources, download=get)
        return cls(options=options, reason="", wanted=wanted, recipes=available, sources=found_sources)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the plan."""
        notes = (note for extension, note in self.sources.notes.items() if extension in self.wanted)
        return tuple(dict.fromkeys(filter(None, notes)))

    def packages(self, overrides: Overrides) -> tuple[PlannedPackage, ...]:
        """Return the extensions' packages, whose requirements the provider must have."""
        return tuple(package for task in self._tasks(overrides) for package in task.packages)

    def plan(
        self, environment: Environment, pytorch: Sequence[PlanItem], report: Callable[[str], None]
    ) -> Extensions:
        """Return the extensions' part of a plan, for PyTorch's packages in an environment."""
        options = self.options
        if self.reason:
            return Extensions(reason=self.reason)
        config = chosen(options.config, environment.overrides)
        rendered = self._tasks(environment.overrides)
        own = {package.name for task in rendered for package in task.packages}
        own |= {item.package.name for item in pytorch}
        solver = Solver(environment, config.platform, own)
        choose_wheel = None if options.pyg == "source" else wheel_chooser(config, options, report)
        tasks = []
        for task in rendered:
            lacking = self.sources.left_out.get(task.extension, "")
            task = choose_source(task, options.pyg, lacking, choose_wheel)
            tasks.append(self._add_fingerprint(task, pytorch, solver))
        return Extensions(tasks=tuple(tasks))

    def _tasks(self, overrides: Overrides) -> tuple[Task, ...]:
        config = self.options.config
        values = {**overrides, **self.sources.overrides}
        rendered = (render_tasks(config, name, recipe, values) for name, recipe in self.recipes.items())
        return _needed([task for tasks in rendered for task in tasks], self.wanted)

    def _add_fingerprint(self, task: Task, pytorch: Sequence[PlanItem], solver: Solver) -> Task:
        """Add the fingerprint; a task with an unsolvable environment is not built."""
        against = {
            item.package.file_name: item.fingerprint
            for item in pytorch
            if item.package.python in (None, task.base_python)
        }
        folder = self.sources.folders.get(task.extension)
        environments: list[list[str]] = []
        try:
            environments = [solver.built_with(package) for package in task.packages]
        except PreflightError as error:
            task = replace(task, how="nothing", wheel=None, reason=error.message)
        common = task.recipe.parent.parent / "common"
        fingerprint = digest(
            {
                "recipe": tree(task.recipe.parent),
                "common": tree(common) if common.is_dir() else "",
                "planned": [package.facts for package in task.packages],
                "torch": against,
                "wheel": sha256(task.wheel) if task.wheel else "",
                "sources": [tree(folder)] if folder and not task.wheel else [],
                "environments": environments,
            }
        )
        return replace(task, items=tuple(replace(item, fingerprint=fingerprint) for item in task.items))


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


def choose_source(task: Task, mode: str, lacking: str, choose_wheel: WheelChooser | None) -> Task:
    """Choose a task's input: a wheel if one fits, else its sources.

    ``mode`` is ``auto``, ``source`` or ``prebuilt``; ``lacking`` is the reason for missing sources, or empty. Without
    ``choose_wheel``, wheels are not considered.
    """
    choice = Choice(wheel=None, reason="requested with --pyg source")
    if choose_wheel is not None:
        choice = choose_wheel(task.extension, task.base_python)
    how = "repackage" if choice.wheel else "nothing" if lacking or mode == "prebuilt" else "compile"
    reason = lacking if lacking and not choice.wheel and mode != "prebuilt" else choice.reason
    return replace(task, wheel=choice.wheel, how=how, reason=reason)


def wheel_chooser(config: Config, options: Options, report: Callable[[str], None]) -> WheelChooser:
    """Return a function that looks for a prebuilt wheel; ``config`` already has this run's overrides."""
    index = PygIndex(options.pyg_index or PYG_INDEX)

    def choose(name: str, python: str) -> Choice:
        target = WheelTarget(
            python=python,
            torch_version=config.torch_version,
            cuda_version=config.cuda_version,
            platform=config.platform,
            glibc=config.variant.get("c_stdlib_version", ("2.28",))[0],
        )
        extension = find(name)
        requirements = WheelRequirements(extension=extension, target=target, archs=archs_of(config.variant))
        version = release(extension, config.variant).version
        return find_wheel(requirements, version, index=index, cache=options.cache, report=report)

    return choose


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


def _needed(tasks: Sequence[Task], extensions: Sequence[str]) -> tuple[Task, ...]:
    """Return the tasks of some extensions, and all tasks that these need to be built or tested."""
    makers = {(package.name, task.python): task.name for task in tasks for package in task.packages}
    complete: dict[str, Task] = {}
    for task in tasks:
        names = [
            re.split(r"[ =<>!~]", spec, maxsplit=1)[0]
            for package in task.packages
            for spec in (*package.build, *package.host, *package.run, *package.test)
        ]
        makes = [makers.get((name, task.python)) or makers.get((name, None)) for name in names]
        needs = dict.fromkeys(maker for maker in makes if maker and maker != task.name)
        complete[task.name] = replace(task, needs=tuple(needs))
    kept: set[str] = set()
    queue = [task.name for task in tasks if task.extension in extensions]
    while queue:
        name = queue.pop()
        if name not in kept:
            kept.add(name)
            queue += complete[name].needs
    return tuple(task for name, task in complete.items() if name in kept)
