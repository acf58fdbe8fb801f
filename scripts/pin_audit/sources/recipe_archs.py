"""The CUDA architectures that each recipe of this repository builds for, per CUDA version.

The list comes from conda_build_config.yaml by way of the configs; an extension takes libtorch's, and may leave the
oldest out by a call of arch_list.py in its build script. A feedstock's list is read from its build scripts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from groundwork.errors import AuditError
from megabuild.configs.config import Config
from megabuild.configs.matrix import MATRIX_FILE
from pin_audit.archs import split
from pin_audit.build_scripts import arch_list
from pin_audit.facts import RecipeArchs, Scope, SourceOutcome, Where
from pin_audit.recipe_lines import key_lines
from pin_audit.request import AuditRequest
from pin_audit.targets import packages

_KEY = "torch_cuda_arch_list"
_SCRIPT = re.compile(r"^\s*file:\s*(\S+\.sh)\s*$", re.MULTILINE)
_AT_LEAST = re.compile(r"arch_list\.py.*--at-least\s+(\d+\.\d+)")


def read(request: AuditRequest) -> SourceOutcome:
    """Return the lists of all recipes here, for any audited package: they should agree."""
    if request.foreign:
        return _of_feedstock(request)
    lines = key_lines(request.root).get(_KEY, {})
    recipes = {package.name: request.root / package.recipe for package in packages()}
    floors = {name: _floor(recipe) for name, recipe in recipes.items() if recipe.is_file()}
    found: dict[tuple[str, str, str], list[Config]] = {}
    places: dict[tuple[str, str, str], Where] = {}
    for config in request.configs:
        text = config.variant.get(_KEY, ("",))[0]
        for name, (oldest, floor) in floors.items():
            if config.cuda_version is None or (name != "pytorch" and not config.platform.startswith("linux")):
                continue
            kept = ";".join(arch for arch in text.split(";") if _number(arch) >= _number(oldest))
            key = (config.cuda_version, name, kept)
            found.setdefault(key, []).append(config)
            where = Where(file=MATRIX_FILE, line=lines.get(text))
            places[key] = where if kept == text else Where(file=request.shown(floor[0]), line=floor[1])
    return SourceOutcome(source="recipe_archs", facts=_facts(found, places, request))


def _of_feedstock(request: AuditRequest) -> SourceOutcome:
    """Return the lists that the build scripts set; a config whose list is not found there is the outcome's trouble."""
    name = request.target.package
    found: dict[tuple[str, str, str], list[Config]] = {}
    places: dict[tuple[str, str, str], Where] = {}
    unread: dict[str, None] = {}
    configs = [
        config for config in request.configs if config.cuda_version and not config.platform.startswith("win-")
    ]
    for config in configs:
        cuda = config.cuda_version or ""
        if known := arch_list(request.root, config):
            text, script, line = known
            found.setdefault((cuda, name, text), []).append(config)
            places.setdefault((cuda, name, text), Where(file=request.shown(script), line=line))
        else:
            unread[f"CUDA {cuda}"] = None
    trouble = f"no script beside the recipe sets TORCH_CUDA_ARCH_LIST in plain text for {', '.join(unread)}"
    return SourceOutcome(
        source="recipe_archs",
        facts=_facts(found, places, request),
        trouble=trouble if unread else "",
        applies=bool(configs),
    )


def _facts(
    found: Mapping[tuple[str, str, str], list[Config]],
    places: Mapping[tuple[str, str, str], Where],
    request: AuditRequest,
) -> tuple[RecipeArchs, ...]:
    facts = []
    for (cuda, recipe, archs), configs in found.items():
        here = {config.platform for config in configs}
        elsewhere = {config.platform for config in request.configs if config.cuda_version == cuda} - here
        holds = Scope(
            configs=tuple(config.name for config in configs),
            # if other platforms with this CUDA version have another list
            platforms=tuple(sorted(here)) if elsewhere else (),
            cuda=(cuda,),
        )
        where = places[cuda, recipe, archs]
        facts.append(
            RecipeArchs(name=f"CUDA {cuda}", archs=split(archs), holds=holds, where=where, recipe=recipe)
        )
    return tuple(sorted(facts, key=lambda one: (one.name, one.recipe, one.archs)))


def _number(arch: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", arch))


def _floor(recipe: Path) -> tuple[str, tuple[Path, int]]:
    """Return the oldest architecture that a recipe's build script keeps, or an empty string, and its place."""
    try:
        scripts = [recipe.parent / name for name in _SCRIPT.findall(recipe.read_text(encoding="utf-8"))]
        for script in filter(Path.is_file, scripts):
            for number, line in enumerate(script.read_text(encoding="utf-8").splitlines(), start=1):
                if match := _AT_LEAST.search(line):
                    return match[1], (script.resolve(), number)
    except (OSError, UnicodeError) as error:
        raise AuditError(f"cannot read the build script of {recipe}: {error}", "correct it") from error
    return "", (recipe, 0)
