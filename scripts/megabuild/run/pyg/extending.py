"""The extensions in a run's plan, from what was asked for to tasks with reasons."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from megabuild.configs.overrides import complete
from megabuild.configs.render import PlannedPackage
from megabuild.run import solving
from megabuild.run.options import Options, Plan
from megabuild.run.place import cache_folder, for_engine
from megabuild.run.pyg import planning, sdists, sources, tasks
from megabuild.run.pyg.checking import checker
from megabuild.run.pyg.tasks import Extensions, Task
from megabuild.run.pyg.wheels import archs_of, chooser

Overrides = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Extending:
    """What is known about a run's extensions before its environment is there.

    Parameters
    ----------
    options:
        What was asked for.
    reason:
        Why the run builds none, or an empty string.
    recipes:
        Their recipe files by name.
    wanted:
        Names of those that were asked for.
    sources:
        Where their sources come from.
    """

    options: Options
    reason: str
    recipes: Mapping[str, Path]
    wanted: tuple[str, ...]
    sources: sources.Sources

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the plan."""
        notes = (note for extension, note in self.sources.notes.items() if extension in self.wanted)
        return tuple(dict.fromkeys(notes))

    def packages(self, overrides: Overrides) -> tuple[PlannedPackage, ...]:
        """Return what they would make, for the provider, which must have what that takes."""
        return () if self.reason else self._rendered(overrides).packages

    def finish(self, plan: Plan, report: Callable[[str], None]) -> Extensions:
        """Return the extensions' part of a plan whose environment is known."""
        options = self.options
        if self.reason:
            return Extensions(reason=self.reason)
        found = self._rendered(plan.overrides)
        choose = None if options.pyg == "source" else chooser(options, plan.overrides, report)
        decided = planning.decided(found, mode=options.pyg, sources=self.sources, choose=choose)
        torch = {
            item.package.file_name: (
                item.package.python,
                plan.package_fingerprints[item.package.file_name],
            )
            for item in plan.items
        }
        own = frozenset(package.name for package in (*(item.package for item in plan.items), *found.packages))
        return planning.settled(
            decided,
            torch=torch,
            sources=self.sources,
            channel=options.packages,
            solve=solver(plan, own),
        )

    def _rendered(self, overrides: Overrides) -> planning.Rendered:
        return planning.rendered(
            for_engine(self.options.config),
            self.recipes,
            overrides,
            extensions=self.wanted,
            sources=self.sources,
        )


def solver(plan: Plan, own: frozenset[str]) -> planning.Solver:
    """Return what solves a package's environments, each once.

    Parameters
    ----------
    plan:
        The run, whose environment is known.
    own:
        Names of packages that the run itself makes, which no channel has yet.
    """
    environment, platform = plan.environment, plan.options.config.platform
    done: dict[tuple[str, ...], list[str]] = {}

    def solve(package: PlannedPackage) -> list[str]:
        lines: list[str] = []
        for kind in ("build", "host", "run", "test"):
            specs = tuple(spec for spec in getattr(package, kind) if spec.split()[0] not in own)
            if kind in ("run", "test"):  # not with any Python, but with the one that it is for
                specs += tuple(spec for spec in package.host if spec.split()[0] == "python")
            if specs not in done:
                what = f"{package.name} {package.build_string}: {kind} environment"
                found = solving.environment(
                    specs, environment.channels, platform, virtual=environment.virtual_packages, what=what
                )
                done[specs] = [f"{kind} {solved.name} {solved}" for solved in found]
            if kind in ("build", "host"):
                lines += done[specs]
        return lines

    return solve


def check(plan: Plan) -> Callable[[Path, Task], None]:
    """Return what looks into a task's packages before they are published."""
    config = plan.options.config
    variant = {**config.variant, **complete(config, plan.overrides)}
    return checker(config, archs_of(variant))


def begin(options: Options, report: Callable[[str], None]) -> Extending:
    """Find out which extensions a run is to build and where their sources are.

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
    reason = planning.why_not(options.config, pyg=options.pyg, rehearse=options.rehearse)
    recipes = tasks.recipes(options.root)
    wanted = tasks.chosen(recipes, options.extensions)
    if not reason and not recipes:
        reason = "there are no recipes for them"
    found = sources.Sources()
    if not reason:
        report("looking for the extensions' sources")
        cache = cache_folder(options, os.environ)
        # those of all recipes: an extension that was not asked for may be needed by one that was
        found = sources.find(
            recipes,
            options.config.variant,
            options.pyg_sources,
            download=lambda wanted: sdists.download(wanted, cache),
        )
    return Extending(options=options, reason=reason, recipes=recipes, wanted=wanted, sources=found)
