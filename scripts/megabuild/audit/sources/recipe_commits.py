"""What the recipes of this repository take from git, as rendered for every config, and the line that names the commit.

All recipes are read, whatever package is audited: one may build a library that another one's upstream vendors, and is
then meant to take the same commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from megabuild.audit.facts import Holds, Outcome, RecipeCommit, Where
from megabuild.audit.recipe_lines import Line, Place, git_lines, key_lines, place
from megabuild.audit.request import Request
from megabuild.audit.targets import packages
from megabuild.configs.config import Config
from megabuild.configs.matrix import MATRIX_FILE
from megabuild.configs.render import render
from megabuild.errors import AuditError, ConfigError
from megabuild.network import redact

SOURCE = "recipe_commits"


def read(request: Request) -> Outcome:
    """Render every recipe that takes something from git."""
    target = request.target
    recipes = {one.name: request.root / one.recipe for one in packages()}
    if target.recipe is not None:
        recipes[target.package] = target.recipe
    facts: list[RecipeCommit] = []
    troubles: list[str] = []
    for name, recipe in recipes.items():
        if recipe.is_file():
            try:
                facts += _of_recipe(name, recipe, request)
            except (AuditError, ConfigError) as error:
                troubles.append(error.message)
    facts.sort(key=lambda one: (one.name, one.recipe, one.value))
    return Outcome(source=SOURCE, facts=tuple(facts), trouble="; ".join(troubles))


def _of_recipe(name: str, recipe: Path, request: Request) -> list[RecipeCommit]:
    lines = git_lines(recipe)
    if not lines:
        return []
    found: dict[tuple[str, str], list[Config]] = {}
    built: list[Config] = []
    for config in request.configs:
        kept = [package for package in render(config, recipe) if not package.skipped]
        built += [config] if kept else []
        for address, revision in dict.fromkeys(pair for package in kept for pair in package.git):
            found.setdefault((address, revision), []).append(config)
    keys = key_lines(request.root / MATRIX_FILE)
    file = request.shown(recipe)
    key = next((one.key for one in packages() if one.name == request.target.package), "")
    facts = []
    for (address, revision), configs in found.items():
        here = _place(address, revision, lines, configs[0])
        line = keys.get(here.key, {}).get(revision) if here.key else None
        by_key = bool(line and here.line)
        shown = redact.address(address) if "://" in address else address
        everywhere = len(configs) == len(built)
        facts.append(
            RecipeCommit(
                name=shown.rstrip("/").removesuffix(".git").rpartition("/")[2],
                value=revision,
                # wherever the recipe is built at all
                holds=Holds() if everywhere else Holds(configs=tuple(config.name for config in configs)),
                where=Where(file=MATRIX_FILE, line=line) if line else Where(file=file, line=here.line),
                address=shown,
                recipe=name,
                version=configs[0].variant.get(key, ("",))[0],
                key=here.key if by_key else "",
                asked_for_at=f"{file}:{here.line}" if by_key else "",
            )
        )
    return facts


def _place(address: str, revision: str, lines: Sequence[Line], config: Config) -> Place:
    """Find where a source stands: with a key that has this revision, else in plain text, else anywhere that fits."""
    variant: Mapping[str, str] = {
        key: revision if revision in texts else texts[0] for key, texts in config.variant.items() if texts
    }
    found = [place(f"{address} {revision}", "source", "", [line], variant) for line in lines]
    fitting = [one for one in found if one.line is not None]
    fitting.sort(key=lambda one: (one.value != revision, one.key != ""))
    return next(iter(fitting), Place(line=None))
