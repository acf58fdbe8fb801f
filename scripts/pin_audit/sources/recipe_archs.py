"""The CUDA architectures that each recipe of this repository builds for, per CUDA version.

The list comes from conda_build_config.yaml by way of the configs; an extension takes libtorch's, and may leave the
oldest out by a call of arch_list.py in its build script. A feedstock's lists are not read.
"""

from __future__ import annotations

import re
from pathlib import Path

from groundwork.errors import AuditError
from megabuild.configs.config import Config
from megabuild.configs.matrix import MATRIX_FILE
from pin_audit.archs import split
from pin_audit.facts import RecipeArchs, Scope, SourceOutcome, Where
from pin_audit.recipe_lines import key_lines
from pin_audit.request import AuditRequest
from pin_audit.targets import packages

SOURCE = "recipe_archs"
_KEY = "torch_cuda_arch_list"
_SCRIPT = re.compile(r"^\s*file:\s*(\S+\.sh)\s*$", re.MULTILINE)
_AT_LEAST = re.compile(r"arch_list\.py.*--at-least\s+(\d+\.\d+)")


def read(request: AuditRequest) -> SourceOutcome:
    """Return the lists of all recipes here, for any audited package: they should agree."""
    if request.foreign:
        return SourceOutcome(source=SOURCE, trouble="a feedstock's lists are not read", applies=False)
    lines = key_lines(request.root).get(_KEY, {})
    recipes = {package.name: request.root / package.recipe for package in packages()}
    floors = {name: _floor(recipe, request) for name, recipe in recipes.items() if recipe.is_file()}
    alike: dict[tuple[str, str, str], tuple[list[Config], Where]] = {}
    configs = [config for config in request.configs if config.cuda_version]
    for config in configs:
        text = config.variant.get(_KEY, ("",))[0]
        for name, (oldest, where) in floors.items():
            if name == "pytorch" or config.platform.startswith("linux"):
                kept = ";".join(arch for arch in text.split(";") if _number(arch) >= _number(oldest))
                where = Where(file=MATRIX_FILE, line=lines.get(text)) if kept == text else where
                alike.setdefault((config.cuda_version or "", name, kept), ([], where))[0].append(config)
    facts = []
    for (cuda, recipe, archs), (having, where) in alike.items():
        here = {config.platform for config in having}
        # if other platforms with this CUDA version have another list
        elsewhere = {config.platform for config in configs if config.cuda_version == cuda} - here
        names, platforms = tuple(config.name for config in having), tuple(sorted(here)) if elsewhere else ()
        holds = Scope(configs=names, platforms=platforms, cuda=(cuda,))
        facts.append(
            RecipeArchs(name=f"CUDA {cuda}", archs=split(archs), holds=holds, where=where, recipe=recipe)
        )
    facts.sort(key=lambda fact: (fact.name, fact.recipe, fact.archs))
    return SourceOutcome(source=SOURCE, facts=tuple(facts))


def _number(arch: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", arch))


def _floor(recipe: Path, request: AuditRequest) -> tuple[str, Where]:
    """Return the oldest architecture that a recipe's build script keeps, or an empty string, and its place."""
    try:
        scripts = [recipe.parent / name for name in _SCRIPT.findall(recipe.read_text(encoding="utf-8"))]
        for script in filter(Path.is_file, scripts):
            for number, line in enumerate(script.read_text(encoding="utf-8").splitlines(), start=1):
                if match := _AT_LEAST.search(line):
                    return match[1], Where(file=request.shown(script.resolve()), line=number)
    except (OSError, UnicodeError) as error:
        raise AuditError(f"cannot read the build script of {recipe}: {error}", "correct it") from error
    return "", Where()
