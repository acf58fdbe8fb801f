"""One extension for one Python, or for all of them: what its recipe makes of it, and what it needs of others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from megabuild.configs.config import Config, python_version
from megabuild.configs.render import PlannedPackage, render
from megabuild.extensions.table import archs_of, find

#: Values by variant key.
Overrides: TypeAlias = Mapping[str, tuple[str, ...]]
_PER_PYTHON = re.compile(r"(?:^|_)py\d+t?(?:_|$)")


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
    packages:
        What it makes.
    overrides:
        Variant values in place of the config's: one Python among them.
    wheel:
        A verified wheel to repackage, or None to compile.
    how:
        ``compile``, ``repackage``, or ``nothing`` where only a wheel was allowed and none fits.
    reason:
        Why so.
    fingerprint:
        sha256 over what the packages depend on.
    needs:
        Names of tasks whose packages must be there first, to build it or to test it.
    exists:
        All packages are published, and made from the same inputs.
    archs:
        Number of GPU architectures that it is compiled for; 0 for the CPU.
    """

    extension: str
    python: str | None
    recipe: Path
    packages: tuple[PlannedPackage, ...]
    overrides: Overrides
    wheel: Path | None = None
    how: str = "compile"
    reason: str = ""
    fingerprint: str = ""
    needs: tuple[str, ...] = ()
    exists: bool = False
    archs: int = 0

    @property
    def name(self) -> str:
        """Name of its state folder and in messages: ``pytorch_scatter-py312``, ``pyg-lib-abi3``."""
        return f"{self.extension}-{'py' + self.python.replace('.', '') if self.python else 'abi3'}"

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


def rendered(config: Config, extension: str, recipe: Path, overrides: Overrides) -> tuple[Task, ...]:
    """Render one extension's recipe.

    Parameters
    ----------
    config:
        The config as the engine gets it.
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
    if (
        "is_python_min" in config.variant
    ):  # a package for all Pythons is made with the least of those that are built
        values["is_python_min"] = ("true", *["false"] * (len(pins) - 1))
    found: dict[str | None, list[PlannedPackage]] = {}
    for package in render(config, recipe, overrides=values):
        if not package.skipped:
            own = package.python if _PER_PYTHON.search(package.build_string) else None
            found.setdefault(own, []).append(package)
    cuda = config.cuda_version is not None
    return tuple(
        Task(
            extension=extension,
            python=python,
            recipe=recipe,
            packages=tuple(packages),
            overrides=_one_python(values, list(pins), python or packages[0].python),
            archs=len(archs_of({**config.variant, **overrides})) if cuda else 0,
        )
        for python, packages in found.items()
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
