"""The CUDA architectures that each recipe of this repository builds for, per CUDA version.

The list comes from conda_build_config.yaml by way of the configs; an extension takes libtorch's, and may leave the
oldest out by a call of arch_list.py in its build script.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from megabuild.audit.archs import split
from megabuild.audit.facts import Holds, Outcome, RecipeArchs, Where
from megabuild.audit.recipe_lines import key_lines
from megabuild.audit.request import Request
from megabuild.audit.targets import packages
from megabuild.configs.config import Config
from megabuild.configs.matrix import MATRIX_FILE
from megabuild.errors import AuditError

SOURCE = "recipe_archs"
KEY = "torch_cuda_arch_list"
_SCRIPT = re.compile(r"^\s*file:\s*(\S+\.sh)\s*$", re.MULTILINE)
_AT_LEAST = re.compile(r"arch_list\.py.*--at-least\s+(\d+\.\d+)")


@dataclass(frozen=True, kw_only=True)
class _Floor:
    """The oldest architecture that a build script keeps, and where it says so."""

    arch: str
    file: str
    line: int


def read(request: Request) -> Outcome:
    """Take the lists of all recipes here, whatever package is audited: they are meant to agree."""
    try:
        lines = key_lines(request.root / MATRIX_FILE).get(KEY, {})
        floors = {
            package.name: _floor(request.root, request.root / package.recipe)
            for package in packages()
            if (request.root / package.recipe).is_file()
        }
    except AuditError as error:
        return Outcome(source=SOURCE, trouble=error.message)
    found: dict[tuple[str, str, str], list[Config]] = {}
    places: dict[tuple[str, str, str], Where] = {}
    for config in request.configs:
        if config.cuda_version is None:
            continue
        text = config.variant.get(KEY, ("",))[0]
        for name, floor in floors.items():
            if name != "pytorch" and not config.platform.startswith("linux"):
                continue
            key = (config.cuda_version, name, _kept(text, floor))
            found.setdefault(key, []).append(config)
            places[key] = _where(text, floor, lines)
    facts = [
        RecipeArchs(
            name=f"CUDA {cuda}",
            archs=split(archs),
            holds=Holds(
                configs=tuple(config.name for config in configs),
                platforms=_platforms(configs, request.configs, cuda),
                cuda=(cuda,),
            ),
            where=places[cuda, recipe, archs],
            recipe=recipe,
        )
        for (cuda, recipe, archs), configs in found.items()
    ]
    facts.sort(key=lambda one: (one.name, one.recipe, one.archs))
    return Outcome(source=SOURCE, facts=tuple(facts))


def _kept(text: str, floor: _Floor | None) -> str:
    archs = text.split(";")
    if floor is None:
        return text
    return ";".join(arch for arch in archs if _number(arch) >= _number(floor.arch))


def _number(arch: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", arch))


def _where(text: str, floor: _Floor | None, lines: Mapping[str, int]) -> Where:
    if floor is not None and _kept(text, floor) != text:
        return Where(file=floor.file, line=floor.line)
    return Where(file=MATRIX_FILE, line=lines.get(text))


def _floor(root: Path, recipe: Path) -> _Floor | None:
    """Look for the call that leaves out old architectures in the build script that a recipe names."""
    try:
        scripts = [recipe.parent / name for name in _SCRIPT.findall(recipe.read_text(encoding="utf-8"))]
        for script in scripts:
            if not script.is_file():
                continue
            for number, line in enumerate(script.read_text(encoding="utf-8").splitlines(), start=1):
                if match := _AT_LEAST.search(line):
                    file = script.resolve()
                    shown = file.relative_to(root.resolve()) if file.is_relative_to(root.resolve()) else file
                    return _Floor(arch=match[1], file=str(shown), line=number)
    except (OSError, UnicodeError) as error:
        raise AuditError(f"cannot read the build script of {recipe}: {error}", "correct it") from error
    return None


def _platforms(configs: Sequence[Config], all_configs: Sequence[Config], cuda: str) -> tuple[str, ...]:
    """Return the platforms, if other platforms with this CUDA version have another list."""
    here = {config.platform for config in configs}
    everywhere = {config.platform for config in all_configs if config.cuda_version == cuda}
    return () if here == everywhere else tuple(sorted(here))
