"""What is to be built of the extensions: one task per extension and Python, or one per extension for all Pythons."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from megabuild.configs.config import Config, python_version
from megabuild.configs.render import PlannedPackage, render
from megabuild.errors import UsageError
from megabuild.run.fingerprint import digest, tree
from megabuild.run.pyg import effort

COMMON = "common"
ARCH_LIST = "torch_cuda_arch_list"
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
    builds_after, tests_after:
        Names of tasks whose packages must be there first.
    exists:
        All packages are published, and made from the same inputs.
    archs:
        Number of GPU architectures that it is compiled for; 0 for the CPU.
    """

    extension: str
    python: str | None
    recipe: Path
    packages: tuple[PlannedPackage, ...]
    overrides: Mapping[str, tuple[str, ...]]
    wheel: Path | None = None
    how: str = "compile"
    reason: str = ""
    fingerprint: str = ""
    builds_after: tuple[str, ...] = ()
    tests_after: tuple[str, ...] = ()
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
        return effort.cpu_seconds(self.extension, self.archs) if self.how == "compile" else 10


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


def recipes(root: Path) -> dict[str, Path]:
    """Return the extensions' recipes by name."""
    folder = root.absolute() / "recipe" / "pyg"
    return {path.parent.name: path for path in sorted(folder.glob("*/recipe.yaml"))}


def chosen(known: Iterable[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the extensions that a user names; ``scatter`` and ``torch_scatter`` mean ``pytorch_scatter``.

    Raises
    ------
    UsageError
        There is no such extension.
    """
    known = tuple(known)
    names = {_short(name): name for name in known}
    unknown = [name for name in wanted if _short(name) not in names]
    if unknown:
        raise UsageError(f"there is no extension '{unknown[0]}'", f"there are: {', '.join(known) or 'none'}")
    asked = {names[_short(name)] for name in wanted}
    return tuple(name for name in known if not asked or name in asked)


def _short(name: str) -> str:
    return re.sub(r"^(pytorch|torch)_", "", name.lower().replace("-", "_"))


def tasks(
    config: Config, extension: str, recipe: Path, overrides: Mapping[str, tuple[str, ...]]
) -> tuple[Task, ...]:
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
    values = {**overrides, **_least_python(config, len(pins))}
    found: dict[str | None, list[PlannedPackage]] = {}
    for package in render(config, recipe, overrides=values):
        if not package.skipped:
            own = package.python if _PER_PYTHON.search(package.build_string) else None
            found.setdefault(own, []).append(package)
    return tuple(
        Task(
            extension=extension,
            python=python,
            recipe=recipe,
            packages=tuple(packages),
            overrides=_one(values, pins, python or packages[0].python),
            archs=_archs(config, overrides),
        )
        for python, packages in found.items()
    )


def _archs(config: Config, overrides: Mapping[str, tuple[str, ...]]) -> int:
    """Return how many GPU architectures are asked for."""
    if config.cuda_version is None:
        return 0
    listed = overrides.get(ARCH_LIST) or config.variant.get(ARCH_LIST) or ("",)
    return len([arch for arch in re.split(r"[;, ]", listed[0]) if arch not in ("", "None")])


def _least_python(config: Config, count: int) -> dict[str, tuple[str, ...]]:
    """Say which Python is the least one of those that are built: a package for all of them is made with it."""
    if "is_python_min" not in config.variant:
        return {}
    return {"is_python_min": ("true", *["false"] * (count - 1))}


def _one(
    values: Mapping[str, tuple[str, ...]], pins: Mapping[str, str], python: str | None
) -> dict[str, tuple[str, ...]]:
    number = list(pins).index(python) if python is not None and python in pins else 0
    one = {key: (values[key][number],) for key in ("python", "is_python_min") if key in values}
    return {**values, **one}


def linked(every: Sequence[Task]) -> tuple[Task, ...]:
    """Find out which tasks need packages of others, to be built or only to be tested."""
    makers = {(package.name, task.python): task.name for task in every for package in task.packages}

    def needs(task: Task, *kinds: str) -> tuple[str, ...]:
        names = [
            re.split(r"[ =<>!~]", spec, maxsplit=1)[0]
            for package in task.packages
            for kind in kinds
            for spec in getattr(package, kind)
        ]
        makes = [makers.get((name, task.python)) or makers.get((name, None)) for name in names]
        return tuple(dict.fromkeys(maker for maker in makes if maker and maker != task.name))

    return tuple(
        replace(task, builds_after=needs(task, "build", "host"), tests_after=needs(task, "run", "test"))
        for task in every
    )


def narrowed(every: Sequence[Task], extensions: Sequence[str]) -> tuple[Task, ...]:
    """Keep the tasks of some extensions, and those that they need."""
    keep = {task.name for task in every if task.extension in extensions}
    known = {task.name: task for task in every}
    queue = list(keep)
    while queue:
        task = known[queue.pop()]
        for name in (*task.builds_after, *task.tests_after):
            if name not in keep:
                keep.add(name)
                queue.append(name)
    return tuple(task for task in every if task.name in keep)


def fingerprint(
    task: Task,
    *,
    torch: Mapping[str, str],
    wheel: str,
    sources: Sequence[Path],
    environments: Sequence[Sequence[str]],
) -> str:
    """Return the sha256 over what a task's packages depend on.

    Parameters
    ----------
    task:
        The task.
    torch:
        Fingerprints of PyTorch's packages that it is built against, by file name.
    wheel:
        sha256 of the wheel that it repackages, or an empty string.
    sources:
        Folders whose contents are compiled.
    environments:
        What its packages are built with.
    """
    folder = task.recipe.parent
    common = folder.parent / COMMON
    return digest(
        {
            "recipe": tree(folder),
            "common": tree(common) if common.is_dir() else "",
            "planned": [asdict(package) for package in task.packages],
            "torch": dict(torch),
            "wheel": wheel,
            "sources": [tree(source) for source in sources],
            "environments": [list(environment) for environment in environments],
        }
    )
