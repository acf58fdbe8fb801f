"""What the recipes of this repository take from git, as rendered for every config, and the line that names the commit.

All recipes are read, whatever package is audited: one may build a library that another one's upstream vendors, and is
then meant to take the same commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from megabuild.audit.model import Finding, Kind, Origin, Outcome
from megabuild.audit.recipe_lines import Line, Place, git_lines, key_lines, place
from megabuild.audit.request import Request
from megabuild.audit.scopes import words
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
    findings: list[Finding] = []
    troubles: list[str] = []
    for name, recipe in recipes.items():
        if recipe.is_file():
            try:
                findings += _of_recipe(name, recipe, request)
            except (AuditError, ConfigError) as error:
                troubles.append(error.message)
    return Outcome(
        source=SOURCE,
        findings=tuple(sorted(findings, key=lambda one: (one.name, one.details["recipe"], one.value))),
        trouble="; ".join(troubles),
    )


def _of_recipe(name: str, recipe: Path, request: Request) -> list[Finding]:
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
    file = str(recipe.relative_to(request.root)) if recipe.is_relative_to(request.root) else recipe.name
    key = next((one.key for one in packages() if one.name == request.target.package), "")
    findings = []
    for (address, revision), configs in found.items():
        here = _place(address, revision, lines, configs[0])
        line = keys.get(here.key, {}).get(revision) if here.key else None
        shown = redact.address(address) if "://" in address else address
        details = {
            "address": shown,
            "recipe": name,
            "configs": " ".join(config.name for config in configs),
            "version": configs[0].variant.get(key, ("",))[0],
        }
        if line and here.line:
            details |= {"key": here.key, "asked_for_at": f"{file}:{here.line}"}
        findings.append(
            Finding(
                name=shown.rstrip("/").removesuffix(".git").rpartition("/")[2],
                kind=Kind.RECIPE_COMMIT,
                value=revision,
                scope=words([config.name for config in configs], built),
                origin=Origin(file=MATRIX_FILE, line=line) if line else Origin(file=file, line=here.line),
                details=details,
            )
        )
    return findings


def _place(address: str, revision: str, lines: Sequence[Line], config: Config) -> Place:
    """Find where a source stands: with a key that has this revision, else in plain text, else anywhere that fits."""
    variant: Mapping[str, str] = {
        key: revision if revision in texts else texts[0] for key, texts in config.variant.items() if texts
    }
    found = [place(f"{address} {revision}", "source", "", [line], variant) for line in lines]
    fitting = [one for one in found if one.line is not None]
    fitting.sort(key=lambda one: (one.value != revision, one.key != ""))
    return next(iter(fitting), Place(line=None))
