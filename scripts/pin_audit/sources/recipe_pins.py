"""The constraints of each rendered variant of a recipe, and the lines they come from.

The recipe is rendered by the engine for every config, so that what is reported is what a build would ask a solver for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from groundwork.errors import ConfigError
from megabuild.configs.config import Config
from megabuild.configs.render import PlannedPackage, render
from pin_audit.facts import RecipePin, Scope, SourceOutcome, Where
from pin_audit.meta_yaml import needs
from pin_audit.recipe_lines import key_lines, place, read_text, requirement_lines
from pin_audit.request import AuditRequest

SOURCE = "recipe_pins"
_Needs = Iterator[tuple[Config, str, str, Where]]


@dataclass
class _Occurrences:
    """All occurrences of one value of one dependency."""

    where: Where  #: the first
    configs: dict[str, None] = field(default_factory=dict)
    sections: set[str] = field(default_factory=set)
    rendered: bool = True


def read(request: AuditRequest) -> SourceOutcome:
    """Render the recipe for every config of the target; a meta.yaml is read as text."""
    recipe = request.target.recipe
    if recipe is None:
        return SourceOutcome(source=SOURCE, trouble="this repository has no recipe of it")
    if not request.configs:
        return SourceOutcome(source=SOURCE, trouble="it has no rendered configs in .ci_support: rerender it")
    troubles: list[str] = []
    text = read_text(recipe, request.root)
    asked = (
        _of_meta_yaml(text, request) if recipe.name == "meta.yaml" else _of_recipe(recipe, request, troubles)
    )
    found: dict[tuple[str, str], _Occurrences] = {}
    for config, section, spec, where in asked:
        name, _, value = spec.strip().partition(" ")
        occurrences = found.setdefault((name, value or "*"), _Occurrences(where))
        occurrences.configs[config.name] = None
        occurrences.sections.add(section)
        occurrences.rendered &= (
            request.foreign and f"{name} {value}" not in text and _has(config, name, value)
        )
    facts = [
        RecipePin(
            name=name,
            value=value,
            holds=Scope(configs=tuple(occurrences.configs)),
            where=occurrences.where,
            sections=tuple(sorted(occurrences.sections)),
            rendered=occurrences.rendered,
        )
        for (name, value), occurrences in found.items()
    ]
    facts.sort(key=lambda fact: (fact.name, fact.value, fact.holds.configs))
    return SourceOutcome(source=SOURCE, facts=tuple(facts), trouble="; ".join(troubles))


def _has(config: Config, name: str, value: str) -> bool:
    """Whether a rendered config has the value of a requirement, by its name or as a compiler's version."""
    keys = {name.replace("-", "_"), *(key for key in config.variant if key.endswith("_compiler_version"))}
    version = _version(value)
    return bool(version) and any(version in map(_version, config.variant.get(key, ())) for key in keys)


def _version(value: str) -> str:
    return value.partition(" ")[0].removeprefix("==").removesuffix(".*")


def _of_recipe(recipe: Path, request: AuditRequest, troubles: list[str]) -> _Needs:
    """Yield config, section, spec and place."""
    lines, keys = requirement_lines(recipe, request.root), key_lines(request.root)
    variants: list[tuple[Config, tuple[PlannedPackage, ...]]] = []
    for config in request.configs:
        request.services.report(SOURCE, f"{request.target.package}: {config.name}")
        try:
            variants.append((config, render(config, recipe)))
        except ConfigError as error:
            troubles.append(error.message)
    own = {package.name for _, packages in variants for package in packages}
    for config, packages in variants:
        for package in (package for package in packages if not package.skipped):
            sections = {
                "build": (*package.staging_build, *package.build),
                "host": (*package.staging_host, *package.host),
                "run": package.run,
                "constraint": package.constraints,
            }
            for section, spec in ((section, spec) for section, specs in sections.items() for spec in specs):
                name, _, value = spec.partition(" ")
                if name not in own and not name.startswith("__"):
                    short = name.removesuffix(f"_{config.platform}")
                    where = place(short, value or "*", lines, keys, request.shown(recipe))
                    yield config, section, f"{short} {value}", where


def _of_meta_yaml(text: str, request: AuditRequest) -> _Needs:
    """Yield the requirements of a meta.yaml, whose own outputs are no requirements."""
    own = set(re.findall(r"^\s*(?:- )?name:\s*([\w.-]+)\s*$", text, re.MULTILINE))
    for config in request.configs:
        for need in needs(text, config):
            name = need.spec.partition(" ")[0]
            if name not in own and not name.startswith("__"):
                where = Where(file="recipe/meta.yaml", line=need.line)
                yield config, need.section, need.spec, where
