"""The extensions' part of a plan: which, for which Pythons, compiled or repackaged, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from megabuild.configs.config import Config
from megabuild.configs.render import PlannedPackage
from megabuild.errors import PreflightError
from megabuild.files import sha256
from megabuild.run import publish
from megabuild.run.pyg import tasks as making
from megabuild.run.pyg.sources import Sources
from megabuild.run.pyg.tasks import Extensions, Task

Overrides = Mapping[str, tuple[str, ...]]


class Choice(Protocol):
    """A wheel that fits, or the reason why there is none."""

    @property
    def wheel(self) -> Path | None:
        """The verified wheel."""

    @property
    def reason(self) -> str:
        """A sentence for the plan."""


#: Looks for a wheel of an extension for one Python.
Chooser = Callable[[str, str], Choice]
#: Solves the environments of a package and returns a line for every package that it is built with.
Solver = Callable[[PlannedPackage], Sequence[str]]


def why_not(config: Config, *, pyg: str, rehearse: bool) -> str:
    """Return why a run builds no extensions, or an empty string where it does."""
    if pyg == "none":
        return "left out, as asked for (--pyg none)"
    if rehearse:
        return "a rehearsal leaves them out: they need a real PyTorch"
    if not config.platform.startswith("linux"):
        return f"they are built for Linux only, not for {config.platform}"
    if config.provider == "debian":
        return "not for Debian's PyTorch, which is a proof of the pipeline; the other configs for Linux have them"
    return ""


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """The extensions of a run before anything is known about their dependencies.

    Parameters
    ----------
    tasks:
        All tasks.
    left_out:
        Extensions without any, with the reason.
    """

    tasks: tuple[Task, ...]
    left_out: Mapping[str, str]

    @property
    def packages(self) -> tuple[PlannedPackage, ...]:
        """Everything that they make."""
        return tuple(package for task in self.tasks for package in task.packages)


def rendered(
    config: Config,
    recipes: Mapping[str, Path],
    overrides: Overrides,
    *,
    extensions: Sequence[str],
    sources: Sources,
) -> Rendered:
    """Render the extensions' recipes.

    Parameters
    ----------
    config:
        The config as the engine gets it.
    recipes:
        Recipe files by name.
    overrides:
        Variant values in place of the config's; ``python`` is among them.
    extensions:
        The extensions wanted.
    sources:
        Where their sources come from.
    """
    left_out = {name: "not asked for (--extension)" for name in recipes if name not in extensions}
    every: list[Task] = []
    for name, recipe in recipes.items():
        found = making.tasks(config, name, recipe, {**overrides, **sources.overrides})
        every += found
        if not found:
            left_out[name] = f"its recipe leaves it out for {config.name}"
    kept = making.narrowed(making.linked(every), extensions)
    needed = {task.extension for task in kept}
    return Rendered(tasks=kept, left_out={name: why for name, why in left_out.items() if name not in needed})


def decided(found: Rendered, *, mode: str, sources: Sources, choose: Chooser | None) -> Extensions:
    """Decide for every task whether it is compiled.

    Parameters
    ----------
    found:
        The tasks.
    mode:
        ``auto``, ``source`` or ``prebuilt``.
    sources:
        Which sources can be had.
    choose:
        Looks for wheels; None where it is not to.
    """
    made = tuple(_decided(task, mode, sources, choose) for task in found.tasks)
    return Extensions(tasks=made, left_out=found.left_out)


def _decided(task: Task, mode: str, sources: Sources, choose: Chooser | None) -> Task:
    why = "as asked for (--pyg source)"
    if choose is not None and mode != "source":
        choice = choose(task.extension, task.base_python)
        why = choice.reason.removeprefix("compile: ").removeprefix("prebuilt: ")
        if choice.wheel is not None:
            return replace(task, wheel=choice.wheel, how="repackage", reason=why)
        if mode == "prebuilt":
            return replace(task, how="nothing", reason=why)
    unhad = sources.left_out.get(task.extension)
    if unhad:
        return replace(task, how="nothing", reason=unhad)
    return replace(task, how="compile", reason=why)


def settled(
    every: Extensions,
    *,
    torch: Mapping[str, tuple[str | None, str]],
    sources: Sources,
    channel: Path,
    solve: Solver,
) -> Extensions:
    """Add fingerprints, and whether the packages are published already; find out what cannot be put together.

    Parameters
    ----------
    every:
        The tasks.
    torch:
        Python (or None) and fingerprint of PyTorch's packages, by file name.
    sources:
        Local folders that are compiled.
    channel:
        The published channel.
    solve:
        Says what a package's environments consist of, apart from PyTorch.
    """
    known = publish.records(channel)
    done = []
    for task in every.tasks:
        against = {
            name: value for name, (python, value) in torch.items() if python in (None, task.base_python)
        }
        folder = sources.folders.get(task.extension)
        try:
            environments = [solve(package) for package in task.packages]
        except PreflightError as error:
            environments = []
            task = replace(task, how="nothing", wheel=None, reason=error.message)
        fingerprint = making.fingerprint(
            task,
            torch=against,
            wheel=sha256(task.wheel) if task.wheel else "",
            sources=[folder] if folder and not task.wheel else [],
            environments=environments,
        )
        done.append(
            replace(task, fingerprint=fingerprint, exists=published(task, fingerprint, channel, known))
        )
    return replace(every, tasks=tuple(done))


def published(
    task: Task, fingerprint: str, channel: Path, known: Mapping[str, publish.Record] | None = None
) -> bool:
    """Say whether a task's packages are in the channel, made from the same inputs."""
    known = publish.records(channel) if known is None else known
    return all(
        publish.is_published(channel, known.get(package.file_name), fingerprint) for package in task.packages
    )
