"""The constraints of each rendered variant of a recipe, and the lines they come from.

The recipe is rendered by the engine for every config, so that what is reported is what a build would ask a solver for.
The switches of PyTorch's build that choose between vendored and system libraries are reported as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from groundwork.errors import AuditError, ConfigError
from megabuild.configs.config import RECIPES, Config, recipe_of
from megabuild.configs.render import PlannedPackage, render
from pin_audit.facts import AnyFact, RecipePin, Scope, SourceOutcome, Switch, Where
from pin_audit.meta_yaml import needs
from pin_audit.name_map import names
from pin_audit.recipe_lines import is_rendered, key_lines, place, requirement_lines
from pin_audit.request import AuditRequest
from pin_audit.switches import SCRIPT, switches
from pin_audit.texts import read_text

SOURCE = "recipe_pins"


@dataclass
class _Occurrences:
    """All occurrences of one value of one dependency."""

    recipe: Path  #: the first that asks for it
    configs: dict[str, None] = field(default_factory=dict)
    sections: set[str] = field(default_factory=set)
    rendered: bool = True


def read(request: AuditRequest) -> SourceOutcome:
    """Render the recipe for every config of the target."""
    recipe = request.target.recipe
    if recipe is None:
        return SourceOutcome(source=SOURCE, trouble="this repository has no recipe of it")
    if not request.configs:
        return SourceOutcome(source=SOURCE, trouble="it has no rendered configs in .ci_support: rerender it")
    if recipe.name == "meta.yaml":
        return _of_meta_yaml(recipe, request)
    lines, keys = {recipe: requirement_lines(recipe, request.root)}, key_lines(request.root)
    rendered: list[tuple[Config, Path, tuple[PlannedPackage, ...]]] = []
    troubles: list[str] = []
    for config in request.configs:
        request.services.report(SOURCE, f"{request.target.package}: {config.name}")
        used = recipe
        if (
            recipe.parent == request.root / RECIPES
        ):  # PyTorch's: another one where official wheels are taken apart
            used = recipe_of(request.root, config)
        try:
            if used not in lines:
                lines[used] = requirement_lines(used, request.root)
            rendered.append((config, used, render(config, used)))
        except ConfigError as error:
            troubles.append(error.message)
    own = {package.name for *_, packages in rendered for package in packages}
    found: dict[tuple[str, str], _Occurrences] = {}
    for config, used, packages in rendered:
        for section, spec in _requirements(packages):
            name, _, value = spec.partition(" ")
            if name not in own and not name.startswith("__"):
                short = name.removesuffix(f"_{config.platform}")
                met = found.setdefault((short, value or "*"), _Occurrences(used))
                met.configs[config.name] = None
                met.sections.add(section)
                met.rendered &= request.foreign and is_rendered(
                    short, value, lines[used], keys, config.variant
                )
    facts: list[AnyFact] = [
        *_pins(
            found,
            lambda name, value, met: place(name, value, lines[met.recipe], keys, request.shown(met.recipe)),
        )
    ]
    switched, trouble = _switches(request, recipe.parent / SCRIPT) if not request.foreign else ([], "")
    facts = sorted([*facts, *switched], key=lambda one: (one.name, one.value, one.holds.configs))
    return SourceOutcome(
        source=SOURCE, facts=tuple(facts), trouble="; ".join(filter(None, [*troubles, trouble]))
    )


def _of_meta_yaml(recipe: Path, request: AuditRequest) -> SourceOutcome:
    """Read the requirements of a meta.yaml, whose own outputs are no requirements."""
    text = read_text(recipe, request.root)
    own = set(re.findall(r"^\s*(?:- )?name:\s*([\w.-]+)\s*$", text, re.MULTILINE))
    found: dict[tuple[str, str], _Occurrences] = {}
    lines: dict[tuple[str, str], int] = {}
    for config in request.configs:
        for need in needs(text, config):
            name, _, value = need.spec.partition(" ")
            if name not in own and not name.startswith("__"):
                key = (name, value or "*")
                lines.setdefault(key, need.line)
                met = found.setdefault(key, _Occurrences(recipe))
                met.configs[config.name] = None
                met.sections.add(need.section)
                met.rendered &= need.rendered
    shown = request.shown(recipe)
    facts = _pins(found, lambda name, value, _: Where(file=shown, line=lines[name, value]))
    return SourceOutcome(source=SOURCE, facts=tuple(sorted(facts, key=lambda one: (one.name, one.value))))


def _pins(
    found: Mapping[tuple[str, str], _Occurrences], where: Callable[[str, str, _Occurrences], Where]
) -> list[RecipePin]:
    return [
        RecipePin(
            name=name,
            value=value,
            holds=Scope(configs=tuple(met.configs)),
            where=where(name, value, met),
            sections=tuple(sorted(met.sections)),
            rendered=met.rendered,
        )
        for (name, value), met in found.items()
    ]


def _requirements(packages: tuple[PlannedPackage, ...]) -> Iterator[tuple[str, str]]:
    """Yield section and spec of every requirement."""
    for package in packages:
        if not package.skipped:
            sections = {
                "build": (*package.staging_build, *package.build),
                "host": (*package.staging_host, *package.host),
                "run": package.run,
                "constraint": package.constraints,
            }
            yield from ((section, spec) for section, specs in sections.items() for spec in specs)


def _switches(request: AuditRequest, script: Path) -> tuple[list[Switch], str]:
    """Return the switches of every config that compiles PyTorch."""
    compiling = [config for config in request.configs if config.provider != "wheel"]
    if not script.is_file() or not compiling:
        return [], ""
    found: dict[tuple[str, str, int], list[str]] = {}
    try:
        for config in compiling:
            for name, (value, line) in switches(script, config, names().switches()).items():
                found.setdefault((name, value, line), []).append(config.name)
    except AuditError as error:
        return [], error.message
    file = request.shown(script)
    return [
        Switch(name=name, value=value, holds=Scope(configs=tuple(where)), where=Where(file=file, line=line))
        for (name, value, line), where in found.items()
    ], ""
