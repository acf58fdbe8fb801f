"""The constraints of each rendered variant of a recipe, the commits in its git sources, and their lines.

The engine renders the recipe for every config, so that the audit reports exactly the specs that a build would solve.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from groundwork import redact
from groundwork.errors import AuditError, ConfigError
from megabuild.configs.config import MATRIX_FILE, Config
from megabuild.configs.render import PlannedPackage, render
from pin_audit.facts import (
    ANY_VERSION,
    RecipeArchs,
    RecipeCommit,
    RecipePin,
    Scope,
    Section,
    SourceOutcome,
    Where,
    first_value,
    split_archs,
)
from pin_audit.meta_yaml import needs
from pin_audit.recipe_lines import git_lines, place, read_lines, read_text, requirement_lines
from pin_audit.request import About, AuditRequest, Source
from pin_audit.targets import packages

_ARCHS = "torch_cuda_arch_list"
_META_YAML = "meta.yaml"
_TORCH = "pytorch"
_VIRTUAL = "__"  # conda's packages for properties of the machine


@dataclass(frozen=True, kw_only=True)
class RenderedNeed:
    """A requirement that holds for a config, and its place in the recipe."""

    config: Config
    section: Section
    name: str
    value: str  #: ``*`` for any version
    where: Where


def read(request: AuditRequest) -> SourceOutcome:
    """Render the recipe for every config of the target; a meta.yaml is read as text."""
    recipe = request.target.recipe
    if recipe is None:
        return SourceOutcome(trouble=f"{request.target.package}: no recipe in this repository")
    if not request.configs:
        reason = ".ci_support: no rendered configs (run: conda-smithy rerender)"
        return SourceOutcome(trouble=reason)
    troubles: list[str] = []
    text = read_text(recipe, request.root)
    is_text = recipe.name == _META_YAML
    alike: dict[tuple[str, str], list[RenderedNeed]] = {}
    for need in _of_meta_yaml(text, request) if is_text else _of_recipe(recipe, request, troubles):
        alike.setdefault((need.name, need.value), []).append(need)
    facts = [_pin(same, text, foreign=request.foreign) for same in alike.values()]
    facts.sort(key=lambda fact: (fact.name, fact.value, fact.holds.configs))
    return SourceOutcome(facts=tuple(facts), trouble="; ".join(troubles))


def _pin(needs: list[RenderedNeed], recipe: str, *, foreign: bool) -> RecipePin:
    """Return the fact on one requirement of several configs and sections."""
    first = needs[0]
    spec = f"{first.name} {first.value}"
    written = not foreign or spec in recipe
    return RecipePin(
        name=first.name,
        value=first.value,
        holds=Scope(configs=tuple(dict.fromkeys(need.config.name for need in needs))),
        where=first.where,
        sections=tuple(sorted({need.section for need in needs})),
        rendered=not written and all(_is_rendered(need) for need in needs),
    )


def _is_rendered(need: RenderedNeed) -> bool:
    """Whether a rendered config has a requirement's version: for its name, or for a compiler."""
    if need.value == ANY_VERSION:
        return False
    known: set[str] = set()
    for key, values in need.config.variant.items():
        if key == need.name.replace("-", "_") or key.endswith(("_compiler_version", "_stdlib_version")):
            known.update(map(_version, values))
    return _version(need.value) in known


def _version(value: str) -> str:
    return value.partition(" ")[0].removeprefix("==").removesuffix(".*")


def _of_recipe(recipe: Path, request: AuditRequest, troubles: list[str]) -> Iterator[RenderedNeed]:
    """Yield the requirements of a recipe.yaml, except those on its own outputs; a config may fail."""
    lines = requirement_lines(recipe, request.root)
    variants: list[tuple[Config, tuple[PlannedPackage, ...]]] = []
    own: set[str] = set()
    for config in request.configs:
        request.services.report(f"{request.target.package}: {config.name}")
        try:
            rendered = render(config, recipe, build_platform=config.build_platform)
        except ConfigError as error:
            troubles.append(error.message)
            continue
        variants.append((config, rendered))
        own.update(package.name for package in rendered)
    places: dict[tuple[str, str], Where] = {}  # most requirements hold for many packages and configs
    for config, rendered in variants:
        for section, spec in _specs(rendered):
            name, _, version = spec.partition(" ")
            value = version or ANY_VERSION
            if name in own or name.startswith(_VIRTUAL):
                continue
            name = name.removesuffix(f"_{config.platform}")
            if (name, value) not in places:
                places[name, value] = place(name, value, lines)
            where = places[name, value]
            yield RenderedNeed(config=config, section=section, name=name, value=value, where=where)


def _specs(packages: tuple[PlannedPackage, ...]) -> Iterator[tuple[Section, str]]:
    """Yield the requirements of all packages that are built."""
    for package in packages:
        sections = {
            Section.BUILD: (*package.staging_build, *package.build),
            Section.HOST: (*package.staging_host, *package.host),
            Section.RUN: package.run,
            Section.CONSTRAINT: package.constraints,
        }
        for section, specs in sections.items():
            for spec in specs:
                yield section, spec


def _of_meta_yaml(text: str, request: AuditRequest) -> Iterator[RenderedNeed]:
    """Yield the requirements of a meta.yaml, except those on its own outputs."""
    own = set(re.findall(r"^\s*(?:- )?name:\s*([\w.-]+)\s*$", text, re.MULTILINE))
    for config in request.configs:
        for need in needs(text, config):
            name, _, version = need.spec.partition(" ")
            name = name.removesuffix(f"_{config.platform}")
            if name not in own and not name.startswith(_VIRTUAL):
                where = Where(file="recipe/meta.yaml", line=need.line)
                value = version or ANY_VERSION
                yield RenderedNeed(config=config, section=need.section, name=name, value=value, where=where)


def read_archs(request: AuditRequest) -> SourceOutcome:
    """Return the matrix's lists of architectures; extensions use libtorch's, and other feedstocks' are not read."""
    if request.foreign or request.target.package != _TORCH:
        return SourceOutcome(trouble="lists are read for pytorch only", applies=False)
    matrix = read_lines(request.root / MATRIX_FILE, request.root)
    lines = {line.value: line.number for line in reversed(matrix) if line.key == _ARCHS}
    platforms_with: dict[str, set[str]] = {}  # by CUDA version
    alike: dict[tuple[str, str], list[Config]] = {}
    for config in request.configs:
        if config.cuda_version:
            platforms_with.setdefault(config.cuda_version, set()).add(config.platform)
            alike.setdefault((config.cuda_version, first_value(config, _ARCHS)), []).append(config)
    facts = []
    for (cuda, archs), having in sorted(alike.items()):
        platforms = {config.platform for config in having}
        # the list is the only one of its CUDA version if no other platform has one
        only = platforms == platforms_with[cuda]
        holds = Scope(
            configs=tuple(config.name for config in having),
            platforms=() if only else tuple(sorted(platforms)),
            cuda=(cuda,),
        )
        where = Where(file=MATRIX_FILE, line=lines.get(archs))
        facts.append(RecipeArchs(name=f"CUDA {cuda}", archs=split_archs(archs), holds=holds, where=where))
    return SourceOutcome(facts=tuple(facts))


def read_commits(request: AuditRequest) -> SourceOutcome:
    """Render every recipe with a git source, and return the revisions."""
    target = request.target
    recipes: dict[str, Path] = {}
    if not request.foreign:
        recipes = {package.name: request.root / package.recipe for package in packages()}
    if target.recipe is not None and target.recipe.name != _META_YAML:
        recipes[target.package] = target.recipe
    facts: list[RecipeCommit] = []
    troubles: list[str] = []
    for name, recipe in recipes.items():
        if not recipe.is_file():
            continue
        try:
            facts += _commits_of(name, recipe, request)
        except (AuditError, ConfigError) as error:
            troubles.append(error.message)
    facts.sort(key=lambda fact: (fact.name, fact.recipe, fact.value))
    return SourceOutcome(facts=tuple(facts), trouble="; ".join(troubles))


def _commits_of(name: str, recipe: Path, request: AuditRequest) -> list[RecipeCommit]:
    lines = tuple(git_lines(recipe, request.root))
    if not lines:
        return []
    taken: dict[tuple[str, str], list[Config]] = {}
    built = 0
    for config in request.configs:
        sources: dict[tuple[str, str], None] = {}
        rendered = render(config, recipe, build_platform=config.build_platform)
        for package in rendered:
            sources |= dict.fromkeys(package.git)
        if rendered:
            built += 1
        for source in sources:
            taken.setdefault(source, []).append(config)
    key = _version_key(request.target.package)
    commits = []
    for (address, revision), configs in taken.items():
        shown = redact.address(address) if "://" in address else address
        everywhere = len(configs) == built  # all configs that build the recipe
        commits.append(
            RecipeCommit(
                name=shown.rstrip("/").removesuffix(".git").rpartition("/")[2],
                value=revision,
                holds=Scope() if everywhere else Scope(configs=tuple(config.name for config in configs)),
                where=place(address, revision, lines),
                address=shown,
                recipe=name,
                version=first_value(configs[0], key),
            )
        )
    return commits


def _version_key(package: str) -> str:
    """Return the key of conda_build_config.yaml with a package's version; empty for other feedstocks."""
    return next((known.key for known in packages() if known.name == package), "")


SOURCES = {
    "recipe_pins": Source(read=read, about=About.REPOSITORY),
    "recipe_commits": Source(read=read_commits, about=About.REPOSITORY),
    "recipe_archs": Source(read=read_archs, about=About.REPOSITORY),
}
