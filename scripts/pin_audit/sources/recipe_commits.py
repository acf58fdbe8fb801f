"""What the recipes of this repository take from git, as rendered for every config, and the line that names the commit.

All recipes are read, for any audited package: one may build a library that another one's upstream vendors, and should
then take the same commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from groundwork import redact
from groundwork.errors import AuditError, ConfigError
from megabuild.configs.config import Config
from megabuild.configs.render import render
from pin_audit.facts import RecipeCommit, Scope, SourceOutcome
from pin_audit.recipe_lines import git_lines, key_lines, place
from pin_audit.request import AuditRequest
from pin_audit.targets import packages


def read(request: AuditRequest) -> SourceOutcome:
    """Render every recipe that takes something from git."""
    target = request.target
    recipes = {package.name: request.root / package.recipe for package in packages() if not request.foreign}
    if target.recipe is not None and target.recipe.name == "recipe.yaml":
        recipes[target.package] = target.recipe
    facts: list[RecipeCommit] = []
    troubles: list[str] = []
    for name, recipe in recipes.items():
        try:
            facts += _of_recipe(name, recipe, request) if recipe.is_file() else []
        except (AuditError, ConfigError) as error:
            troubles.append(error.message)
    facts.sort(key=lambda fact: (fact.name, fact.recipe, fact.value))
    return SourceOutcome(source="recipe_commits", facts=tuple(facts), trouble="; ".join(troubles))


def _of_recipe(name: str, recipe: Path, request: AuditRequest) -> Iterator[RecipeCommit]:
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
    keys = key_lines(request.root)
    key = next((package.key for package in packages() if package.name == request.target.package), "")
    for (address, revision), configs in taken.items():
        shown = redact.address(address) if "://" in address else address
        everywhere = len(configs) == built  # wherever the recipe is built at all
        yield RecipeCommit(
            name=shown.rstrip("/").removesuffix(".git").rpartition("/")[2],
            value=revision,
            holds=Scope() if everywhere else Scope(configs=tuple(config.name for config in configs)),
            where=place(address, revision, lines, keys, request.shown(recipe)),
            address=shown,
            recipe=name,
            version=configs[0].variant.get(key, ("",))[0],
        )
