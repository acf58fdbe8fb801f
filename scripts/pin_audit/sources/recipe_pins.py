"""The constraints of each rendered variant of a recipe, the commits in its git sources, and their lines.

The engine renders the recipe for every config, so that the audit reports exactly the specs that a build would solve.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from groundwork import redact
from groundwork.errors import AuditError, ConfigError
from megabuild.configs.config import MATRIX_FILE, Config
from megabuild.configs.render import PlannedPackage, render
from pin_audit.facts import RecipeArchs, RecipeCommit, RecipePin, Scope, SourceOutcome, Where, split_archs
from pin_audit.meta_yaml import needs
from pin_audit.recipe_lines import git_lines, place, read_lines, read_text, requirement_lines
from pin_audit.request import About, AuditRequest, Source
from pin_audit.targets import packages

_ARCHS = "torch_cuda_arch_list"
#: A config, a section, a requirement that holds there, and its place.
_Needs = Iterator[tuple[Config, str, str, Where]]


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
    needs_of_configs = (
        _of_meta_yaml(text, request) if recipe.name == "meta.yaml" else _of_recipe(recipe, request, troubles)
    )
    alike: dict[tuple[str, str], list[tuple[str, str, Where, bool]]] = {}
    for config, section, spec, where in needs_of_configs:
        name, _, value = spec.strip().partition(" ")
        rendered = request.foreign and f"{name} {value}" not in text and _is_rendered(config, name, value)
        alike.setdefault((name, value or "*"), []).append((config.name, section, where, rendered))
    facts = []
    for (name, value), having in alike.items():
        configs, sections, places, rendered_in = zip(*having, strict=True)
        facts.append(
            RecipePin(
                name=name,
                value=value,
                holds=Scope(configs=tuple(dict.fromkeys(configs))),
                where=places[0],
                sections=tuple(sorted({*sections})),
                rendered=all(rendered_in),
            )
        )
    facts.sort(key=lambda fact: (fact.name, fact.value, fact.holds.configs))
    return SourceOutcome(facts=tuple(facts), trouble="; ".join(troubles))


def _is_rendered(config: Config, name: str, value: str) -> bool:
    """Whether a rendered config has a requirement's version: for its name, or for a compiler."""
    versions = (key for key in config.variant if key.endswith(("_compiler_version", "_stdlib_version")))
    values = (value for key in (name.replace("-", "_"), *versions) for value in config.variant.get(key, ()))
    return bool(_version(value)) and _version(value) in map(_version, values)


def _version(value: str) -> str:
    return value.partition(" ")[0].removeprefix("==").removesuffix(".*")


def _of_recipe(recipe: Path, request: AuditRequest, troubles: list[str]) -> _Needs:
    lines = requirement_lines(recipe, request.root)
    variants: list[tuple[Config, tuple[PlannedPackage, ...]]] = []
    for config in request.configs:
        request.services.report(f"{request.target.package}: {config.name}")
        try:
            variants.append((config, render(config, recipe)))
        except ConfigError as error:
            troubles.append(error.message)
    own = {package.name for _, rendered in variants for package in rendered}
    for config, rendered in variants:
        for package in (package for package in rendered if not package.skipped):
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
                    where = place(short, value or "*", lines)
                    yield config, section, f"{short} {value}", where


def _of_meta_yaml(text: str, request: AuditRequest) -> _Needs:
    """Yield the requirements of a meta.yaml, except those on its own outputs."""
    own = set(re.findall(r"^\s*(?:- )?name:\s*([\w.-]+)\s*$", text, re.MULTILINE))
    for config in request.configs:
        for section, spec, line in needs(text, config):
            name = spec.partition(" ")[0]
            if name not in own and not name.startswith("__"):
                yield config, section, spec, Where(file="recipe/meta.yaml", line=line)


def read_archs(request: AuditRequest) -> SourceOutcome:
    """Return the matrix's lists of architectures; extensions use libtorch's, and other feedstocks' are not read."""
    if request.foreign or request.target.package != "pytorch":
        return SourceOutcome(trouble="lists are read for pytorch only", applies=False)
    matrix = read_lines(request.root / MATRIX_FILE, request.root)
    lines = {line.value: line.number for line in reversed(matrix) if line.key == _ARCHS}
    alike: dict[tuple[str, str], list[Config]] = {}
    configs = [config for config in request.configs if config.cuda_version]
    for config in configs:
        alike.setdefault((config.cuda_version or "", config.variant.get(_ARCHS, ("",))[0]), []).append(config)
    facts = []
    for (cuda, archs), having in sorted(alike.items()):
        here = {config.platform for config in having}
        # other platforms with the same CUDA version but another list
        elsewhere = {config.platform for config in configs if config.cuda_version == cuda} - here
        names, platforms = tuple(config.name for config in having), tuple(sorted(here)) if elsewhere else ()
        holds = Scope(configs=names, platforms=platforms, cuda=(cuda,))
        where = Where(file=MATRIX_FILE, line=lines.get(archs))
        facts.append(RecipeArchs(name=f"CUDA {cuda}", archs=split_archs(archs), holds=holds, where=where))
    return SourceOutcome(facts=tuple(facts))


def read_commits(request: AuditRequest) -> SourceOutcome:
    """Render every recipe with a git source, and return the revisions."""
    target = request.target
    recipes = {package.name: request.root / package.recipe for package in packages() if not request.foreign}
    if target.recipe is not None and target.recipe.name == "recipe.yaml":
        recipes[target.package] = target.recipe
    facts: list[RecipeCommit] = []
    troubles: list[str] = []
    for name, recipe in recipes.items():
        try:
            facts += _commits_of(name, recipe, request) if recipe.is_file() else []
        except (AuditError, ConfigError) as error:
            troubles.append(error.message)
    facts.sort(key=lambda fact: (fact.name, fact.recipe, fact.value))
    return SourceOutcome(facts=tuple(facts), trouble="; ".join(troubles))


def _commits_of(name: str, recipe: Path, request: AuditRequest) -> Iterator[RecipeCommit]:
    lines = tuple(git_lines(recipe, request.root))
    if not lines:
        return
    taken: dict[tuple[str, str], list[Config]] = {}
    built = 0
    for config in request.configs:
        kept = [package for package in render(config, recipe) if not package.skipped]
        built += bool(kept)
        for source in dict.fromkeys(source for package in kept for source in package.git):
            taken.setdefault(source, []).append(config)
    key = next((package.key for package in packages() if package.name == request.target.package), "")
    for (address, revision), configs in taken.items():
        shown = redact.address(address) if "://" in address else address
        everywhere = len(configs) == built  # all configs that build the recipe
        yield RecipeCommit(
            name=shown.rstrip("/").removesuffix(".git").rpartition("/")[2],
            value=revision,
            holds=Scope() if everywhere else Scope(configs=tuple(config.name for config in configs)),
            where=place(address, revision, lines),
            address=shown,
            recipe=name,
            version=configs[0].variant.get(key, ("",))[0],
        )


SOURCES = {
    "recipe_pins": Source(read=read, about=About.REPOSITORY),
    "recipe_commits": Source(read=read_commits, about=About.REPOSITORY),
    "recipe_archs": Source(read=read_archs, about=About.REPOSITORY),
}
