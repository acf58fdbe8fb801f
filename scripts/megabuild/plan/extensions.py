"""The extensions in a plan: which, for which Pythons, compiled or repackaged, and why.

In two steps, since the provider must know what they take before it makes the environment that the rest depends on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from megabuild.configs.config import Config, python_version
from megabuild.configs.render import PlannedPackage, render
from megabuild.errors import PreflightError, UsageError
from megabuild.extension_table import archs_of, find, recipes, release
from megabuild.extensions import sources
from megabuild.extensions.archives import download
from megabuild.extensions.pyg_index import PygIndex, WheelTarget
from megabuild.extensions.wheels import Choice, WantedWheel, find_wheel
from megabuild.files import sha256
from megabuild.network.index import PYG_INDEX
from megabuild.plan.fingerprint import digest, tree
from megabuild.plan.options import Options
from megabuild.plan.plan import Extensions, Plan, PlanItem, Task
from megabuild.plan.solving import Solver

Overrides = Mapping[str, tuple[str, ...]]
#: Looks for a wheel of an extension for one Python.
Chooser = Callable[[str, str], Choice]

_COMMON = "common"
_PER_PYTHON = re.compile(r"(?:^|_)py\d+t?(?:_|$)")


def why_not(config: Config, *, pyg: str, rehearse: bool) -> str:
    """Return why a run builds no extensions, or an empty string where it does."""
    if pyg == "none":
        return "left out, as asked for (--pyg none)"
    if rehearse:
        return "a rehearsal leaves them out: they need a real PyTorch"
    if not config.platform.startswith("linux"):
        return f"they are built for Linux only, not for {config.platform}"
    if config.provider == "debian" and pyg != "source":
        return "nobody has wheels for Debian's PyTorch (--pyg source compiles them)"
    return ""


class Planned:
    """What is known about a run's extensions before its environment is there.

    Parameters
    ----------
    options:
        What was asked for.
    report:
        Told what takes time.

    Raises
    ------
    UsageError
        An extension or a folder that does not exist.
    """

    def __init__(self, options: Options, report: Callable[[str], None]) -> None:
        self._options = options
        self._report = report
        self._recipes = recipes(options.root)
        self._wanted = _wanted(self._recipes, options.extensions)
        self._sources = sources.Sources()
        self.reason = why_not(options.config, pyg=options.pyg, rehearse=options.rehearse)
        if not self.reason and not self._recipes:
            self.reason = "there are no recipes for them"
        if not self.reason:
            report("looking for the extensions' sources")
            # those of all recipes: an extension that was not asked for may be needed by one that was
            self._sources = sources.find(
                self._recipes,
                options.config.variant,
                options.pyg_sources,
                download=lambda wanted: download(wanted, options.cache),
            )

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the plan."""
        notes = (note for extension, note in self._sources.notes.items() if extension in self._wanted)
        return tuple(dict.fromkeys(notes))

    def packages(self, overrides: Overrides) -> tuple[PlannedPackage, ...]:
        """Return what they would make, for the provider, which must have what that takes."""
        tasks = () if self.reason else self._tasks(overrides)[0]
        return tuple(package for task in tasks for package in task.packages)

    def finish(self, plan: Plan) -> Extensions:
        """Return the extensions' part of a plan whose environment is known."""
        if self.reason:
            return Extensions(reason=self.reason)
        tasks, left_out = self._tasks(plan.overrides)
        choose = None if self._options.pyg == "source" else chooser(plan, self._report)
        unhad = self._sources.left_out
        done = [decided(task, self._options.pyg, unhad.get(task.extension, ""), choose) for task in tasks]
        own = {package.name for task in tasks for package in task.packages}
        own |= {item.package.name for item in plan.items}
        solver = Solver(plan.environment, plan.options.config.platform, own)
        return Extensions(tasks=tuple(self._settled(task, plan, solver) for task in done), left_out=left_out)

    def _tasks(self, overrides: Overrides) -> tuple[tuple[Task, ...], dict[str, str]]:
        """Render the recipes; returns the tasks, and the extensions without any with the reason."""
        config = self._options.config
        left_out: dict[str, str] = {}
        every: list[Task] = []
        for name, recipe in self._recipes.items():
            found = rendered(config, name, recipe, {**overrides, **self._sources.overrides})
            every += found
            if not found and name in self._wanted:
                left_out[name] = f"its recipe leaves it out for {config.name}"
        kept = narrowed(linked(every), self._wanted)
        needed = {task.extension for task in kept}
        return kept, {name: why for name, why in left_out.items() if name not in needed}

    def _settled(self, task: Task, plan: Plan, solver: Solver) -> Task:
        """Add the fingerprint; find out what cannot be put together."""
        against = {
            item.package.file_name: item.fingerprint
            for item in plan.items
            if item.package.python in (None, task.base_python)
        }
        folder = self._sources.folders.get(task.extension)
        environments: list[list[str]] = []
        try:
            environments = [solver.built_with(package) for package in task.packages]
        except PreflightError as error:
            task = replace(task, how="nothing", wheel=None, reason=error.message)
        common = task.recipe.parent.parent / _COMMON
        fingerprint = digest(
            {
                "recipe": tree(task.recipe.parent),
                "common": tree(common) if common.is_dir() else "",
                "planned": [asdict(package) for package in task.packages],
                "torch": against,
                "wheel": sha256(task.wheel) if task.wheel else "",
                "sources": [tree(folder)] if folder and not task.wheel else [],
                "environments": environments,
            }
        )
        return replace(task, items=tuple(replace(item, fingerprint=fingerprint) for item in task.items))


def decided(task: Task, mode: str, unhad: str, choose: Chooser | None) -> Task:
    """Decide whether a task compiles.

    Parameters
    ----------
    task:
        The task.
    mode:
        ``auto``, ``source`` or ``prebuilt``.
    unhad:
        Why its sources cannot be had, or an empty string.
    choose:
        Looks for wheels; None where it is not to.
    """
    why = "as asked for (--pyg source)"
    if choose is not None:
        choice = choose(task.extension, task.base_python)
        why = choice.reason
        if choice.wheel is not None:
            return replace(task, wheel=choice.wheel, how="repackage", reason=why)
        if mode == "prebuilt":
            return replace(task, how="nothing", reason=why)
    return replace(task, how="nothing" if unhad else "compile", reason=unhad or why)


def chooser(plan: Plan, report: Callable[[str], None]) -> Chooser:
    """Return what looks for a prebuilt wheel of an extension for one Python.

    Parameters
    ----------
    plan:
        The run, whose overrides are known.
    report:
        Told what takes time.
    """
    from megabuild.extensions.contents import look_inside  # not before: it takes a moment to import

    config, options = plan.config, plan.options
    index = PygIndex(options.pyg_index or PYG_INDEX)

    def look(name: str, python: str) -> Choice:
        target = WheelTarget(
            python=python,
            torch_version=config.torch_version,
            cuda_version=config.cuda_version,
            platform=config.platform,
            glibc=config.variant.get("c_stdlib_version", ("2.28",))[0],
        )
        extension = find(name)
        return find_wheel(
            WantedWheel(extension=extension, target=target, archs=archs_of(config.variant)),
            release(extension, config.variant).version,
            index=index,
            cache=options.cache,
            report=report,
            judge=look_inside,
        )

    return look


def _wanted(known: Mapping[str, Path], asked: Sequence[str]) -> tuple[str, ...]:
    """Return the extensions that a user names, all where none is named."""
    names = {find(name).conda for name in asked}
    for name in sorted(names - known.keys()):
        raise UsageError(f"there is no recipe for '{name}'", f"there are: {', '.join(known) or 'none'}")
    return tuple(name for name in known if not names or name in names)


def rendered(config: Config, extension: str, recipe: Path, overrides: Overrides) -> tuple[Task, ...]:
    """Render one extension's recipe.

    Parameters
    ----------
    config:
        The config.
    extension:
        Its name.
    recipe:
        Its recipe file.
    overrides:
        Variant values in place of the config's; ``python`` is among them.

    Returns
    -------
    tuple[Task, ...]
        None where the recipe leaves the extension out for this config.
    """
    pins = {python_version(pin): pin for pin in overrides["python"]}
    values = dict(overrides)
    if "is_python_min" in config.variant:
        # a package for all Pythons is made with the least of those that are built
        values["is_python_min"] = ("true", *["false"] * (len(pins) - 1))
    found: dict[str | None, list[PlanItem]] = {}
    for package in render(config, recipe, overrides=values):
        if not package.skipped:
            own = package.python if _PER_PYTHON.search(package.build_string) else None
            found.setdefault(own, []).append(PlanItem(package=package))
    cuda = config.cuda_version is not None
    return tuple(
        Task(
            extension=extension,
            python=python,
            recipe=recipe,
            items=tuple(items),
            overrides=_one_python(values, list(pins), python or items[0].package.python),
            archs=len(archs_of({**config.variant, **overrides})) if cuda else 0,
        )
        for python, items in found.items()
    )


def _one_python(values: Overrides, pythons: Sequence[str], python: str | None) -> dict[str, tuple[str, ...]]:
    number = pythons.index(python) if python in pythons else 0
    one = {key: (values[key][number],) for key in ("python", "is_python_min") if key in values}
    return {**values, **one}


def linked(every: Sequence[Task]) -> tuple[Task, ...]:
    """Find out which tasks need packages of others, to be built or to be tested."""
    makers = {(package.name, task.python): task.name for task in every for package in task.packages}

    def needs(task: Task) -> tuple[str, ...]:
        names = [
            re.split(r"[ =<>!~]", spec, maxsplit=1)[0]
            for package in task.packages
            for kind in ("build", "host", "run", "test")
            for spec in getattr(package, kind)
        ]
        makes = [makers.get((name, task.python)) or makers.get((name, None)) for name in names]
        return tuple(dict.fromkeys(maker for maker in makes if maker and maker != task.name))

    return tuple(replace(task, needs=needs(task)) for task in every)


def narrowed(every: Sequence[Task], extensions: Sequence[str]) -> tuple[Task, ...]:
    """Keep the tasks of some extensions, and those that they need."""
    known = {task.name: task for task in every}
    keep: set[str] = set()
    queue = [task.name for task in every if task.extension in extensions]
    while queue:
        name = queue.pop()
        if name not in keep:
            keep.add(name)
            queue += known[name].needs
    return tuple(task for task in every if task.name in keep)
