"""The constraint that each rendered variant of a recipe really has, and the line where it comes from.

The recipe is rendered by the engine for every config, so that what is reported is what a build would ask a solver for.
The switches of PyTorch's build that choose between vendored and system libraries are reported as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from megabuild.audit.facts import Holds, Outcome, RecipePin, Switch, Where
from megabuild.audit.names import names
from megabuild.audit.recipe_lines import Line, Place, key_lines, place, requirement_lines
from megabuild.audit.request import Request
from megabuild.audit.switches import SCRIPT, switches
from megabuild.configs.config import Config
from megabuild.configs.matrix import MATRIX_FILE
from megabuild.configs.render import PlannedPackage, render
from megabuild.errors import AuditError, ConfigError

SOURCE = "recipe_pins"
ANY = "*"


@dataclass
class _Found:
    """One value of one dependency, and everywhere that it was met."""

    place: Place
    configs: dict[str, None] = field(default_factory=dict)
    sections: set[str] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)


def read(request: Request) -> Outcome:
    """Render the recipe for every config of the target."""
    recipe = request.target.recipe
    if recipe is None:
        return Outcome(source=SOURCE, trouble="this repository has no recipe of it")
    try:
        lines = requirement_lines(recipe)
        keys = key_lines(request.root / MATRIX_FILE)
    except AuditError as error:
        return Outcome(source=SOURCE, trouble=error.message)
    rendered: list[tuple[Config, tuple[PlannedPackage, ...]]] = []
    troubles: list[str] = []
    for config in request.configs:
        request.services.report(SOURCE, f"{request.target.package}: {config.name}")
        try:
            rendered.append((config, render(config, recipe)))
        except ConfigError as error:
            troubles.append(error.message)
    own = {package.name for _, packages in rendered for package in packages}
    found: dict[tuple[str, str], _Found] = {}
    for config, packages in rendered:
        _collect(config, packages, lines, own, found)
    file = request.shown(recipe)
    pins = [_pin(name, value, one, file, keys) for (name, value), one in found.items()]
    told, trouble = _switches(request, recipe.parent / SCRIPT)
    troubles += [trouble] if trouble else []
    return Outcome(
        source=SOURCE,
        facts=tuple(sorted([*pins, *told], key=lambda one: (one.name, one.value, one.holds.configs))),
        trouble="; ".join(troubles),
    )


def _collect(
    config: Config,
    packages: Sequence[PlannedPackage],
    lines: Sequence[Line],
    own: Collection[str],
    found: dict[tuple[str, str], _Found],
) -> None:
    for package in packages:
        if package.skipped:
            continue
        variant = _variant(config, package.python)
        for section, staged, specs in _sections(package):
            outputs = [line.output for line in lines if line.section == section]
            output = (
                next((name for name in outputs if name.endswith("-staging")), "") if staged else package.name
            )
            for spec in specs:
                name, _, value = spec.partition(" ")
                if name in own or name.startswith("__"):
                    continue
                short = name.removesuffix(f"_{config.platform}")
                one = found.setdefault(
                    (short, value or ANY), _Found(place=place(spec, section, output, lines, variant))
                )
                one.configs[config.name] = None
                one.sections.add("constraint" if section == "run_constraints" else section)
                one.outputs.add(output if staged else package.name)


def _sections(package: PlannedPackage) -> Iterator[tuple[str, bool, tuple[str, ...]]]:
    yield "build", True, package.staging_build
    yield "host", True, package.staging_host
    yield "build", False, package.build
    yield "host", False, package.host
    yield "run", False, package.run
    yield "run_constraints", False, package.constraints


def _variant(config: Config, python: str | None) -> dict[str, str]:
    """Return the values that hold for a package; of the Pythons the one that it is for."""
    values = {key: texts[0] for key, texts in config.variant.items() if texts}
    pins = config.variant.get("python", ())
    values["python"] = next(
        (pin for pin in pins if python and pin.startswith(f"{python}.")), values.get("python", "")
    )
    values["target_platform"] = config.platform
    return values


def _pin(
    name: str, value: str, found: _Found, recipe: str, keys: Mapping[str, Mapping[str, int]]
) -> RecipePin:
    here = found.place
    line = keys.get(here.key, {}).get(here.value) if here.key else None
    by_key = bool(line and here.line)
    return RecipePin(
        name=name,
        value=value,
        holds=Holds(configs=tuple(found.configs)),
        where=Where(file=MATRIX_FILE, line=line) if line else Where(file=recipe, line=here.line),
        sections=tuple(sorted(found.sections)),
        outputs=tuple(sorted(found.outputs)),
        key=here.key if by_key else "",
        asked_for_at=f"{recipe}:{here.line}" if by_key else "",
    )


def _switches(request: Request, script: Path) -> tuple[list[Switch], str]:
    """Ask for the switches of every config that compiles PyTorch."""
    compiling = [config for config in request.configs if config.provider != "wheel"]
    if not script.is_file() or not compiling:
        return [], ""
    found: dict[tuple[str, str, int], list[str]] = {}
    wanted = names().switches()
    try:
        for config in compiling:
            for name, set_to in switches(script, config, wanted).items():
                found.setdefault((name, set_to.value, set_to.line), []).append(config.name)
    except AuditError as error:
        return [], error.message
    told = [
        Switch(
            name=name,
            value=value,
            holds=Holds(configs=tuple(configs)),
            where=Where(file=request.shown(script), line=line),
        )
        for (name, value, line), configs in found.items()
    ]
    return told, ""
