"""What the new release asks of its environment other than the old one: requirements, CUDA, the build back end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec import structs
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from pin_audit.bump.changes import FOLLOWS, PERSON, Change, Said
from pin_audit.bump.places import Scalar
from pin_audit.bump.recipe import Asked, Recipe, matches
from pin_audit.bump.release import Release, shown
from pin_audit.bump.scene import CUDA, Scene
from pin_audit.claims import Status
from pin_audit.facts import CiPin, Fact, RecipeArchs, Requirement, UpstreamArchs
from pin_audit.names import names

_TO_DO = (Status.CONFLICT, Status.OLDER)
_SHIPPED = "of the wheels"  # as ci_rules.py calls what upstream's wheels are built for
_BY_VERSION = "the recipe chooses by version"


def requirements(scene: Scene) -> Iterator[Change]:
    """Yield what the wheel's metadata require otherwise, as the recipes' lines have it."""
    old, new = (_by_row(scene, one.all(Requirement)) for one in (scene.old, scene.new))
    for row in dict.fromkeys((*new, *old)) if old and new else ():
        was, now = old.get(row), new.get(row)
        if row in ("python", "cuda-version") or (was and now and was.value == now.value):
            continue
        asked = scene.asks(row, "run", "host" if _of_nvidia(now or was) else "run")
        if was is None or now is None:
            yield from _come_or_gone(scene, row, was, now, asked)
        elif _of_nvidia(now):
            yield _pin(scene, row, was, now, asked)
        else:
            for recipe, one in asked:
                yield from _requirement(scene, recipe, one, was, now)


def _by_row(scene: Scene, facts: list[Requirement]) -> dict[str, Requirement]:
    """Return requirements by the name of their row; those of extras only where the recipe asks for them."""
    found: dict[str, Requirement] = {}
    for fact in facts:
        row = names().by_distribution(fact.name)
        if "extra" in fact.holds.marker and (row in found or not scene.asks(row, "run")):
            continue
        if (known := found.get(row)) and known.value != fact.value:  # by marker
            fact = structs.replace(fact, value=f"{known.value} or {fact.value}")
        found[row] = fact
    return found


def _of_nvidia(fact: Requirement | None) -> bool:
    return fact is not None and fact.name.startswith(("nvidia-", "cuda-"))


def _come_or_gone(
    scene: Scene,
    row: str,
    was: Requirement | None,
    now: Requirement | None,
    asked: list[tuple[Recipe, Asked]],
) -> Iterator[Change]:
    """Yield what only one of the releases requires, if the recipes do not do the same."""
    fact = now or was
    if fact is not None and bool(asked) != bool(now):
        file, line = (
            (asked[0][0].file.name, asked[0][1].place.line) if asked else (scene.main.file.name, None)
        )
        note = "the wheel requires it, no recipe does" if now else "the wheel no longer requires it"
        values = (was.value if was else "", now.value if now else "")
        yield Change(row, PERSON, file, line, *values, shown(fact.where), note)


def _pin(
    scene: Scene, row: str, was: Requirement, now: Requirement, asked: list[tuple[Recipe, Asked]]
) -> Change:
    """Return what a library means whose version conda-forge's pins decide, as the audit's table judges it."""
    judged = next((one for one in scene.rows if one.name == row and one.status in _TO_DO), None)
    # a line that kept the old version out as well says nothing new
    tight = [one for _, one in asked if _admits(one.spec, was.value) and not _admits(one.spec, now.value)]
    file, line = (asked[0][0].file.name, asked[0][1].place.line) if asked else (scene.main.file.name, None)
    texts = ", ".join(dict.fromkeys(_where(one, scene) for _, one in asked))
    note = f"the recipe takes it: {texts}" if asked else "the recipe does not ask for it"
    if tight:
        line, note = tight[0].place.line, f"the recipe asks for {tight[0].text}"
    elif judged:
        note = judged.sentence
    kind = PERSON if tight or judged else FOLLOWS
    return Change(row, kind, file, line, was.value, now.value, shown(now.where), note)


def _where(one: Asked, scene: Scene) -> str:
    """Return a requirement with the last condition on anything but the version."""
    others = [text for text, wanted in one.conditions if wanted and scene.key not in text]
    return f"{one.text} [{others[-1]}]" if others else one.text


def _requirement(
    scene: Scene, recipe: Recipe, one: Asked, was: Requirement, now: Requirement
) -> Iterator[Change]:
    """Yield what one line of a recipe must say of a requirement that changed."""
    row, source = names().by_conda(one.name), shown(now.where)
    alike = (other for other in recipe.asked if (other.name, other.section) == (one.name, one.section))
    before = next((other for other in alike if other.holds(scene.key, scene.old.version)), one)
    chosen = f"{_BY_VERSION} (line {before.place.line} for {scene.old.version})"
    follows = Change(row, FOLLOWS, recipe.file.name, one.place.line, was.value, now.value, source, chosen)
    operator, braces, rest = one.spec.partition("{{")
    version = now.value.lstrip("=~<>!")
    wanted = now.value.removesuffix(version)
    if braces and wanted and re.fullmatch(r"[\w.]+", version):
        if recipe is scene.main:
            place = Scalar("${{ " + rest.removesuffix("}}") + " }}", one.place.line, 0)
            yield from scene.assigned(row, recipe, place, Said(version, source))
        if operator != wanted:
            yield scene.line(row, recipe, one, one.text.replace(operator, wanted, 1), source)
        elif before is not one:
            yield follows
    elif not one.spec or _same(one.spec, now.value):
        note = chosen if before is not one else "any version" if not one.spec else "the recipe has it"
        yield Change(row, FOLLOWS, recipe.file.name, one.place.line, was.value, now.value, source, note)
    elif _same(one.spec, was.value) and " or " not in now.value:
        yield scene.line(row, recipe, one, one.text.replace(one.spec, now.value, 1), source)
    else:
        note = f"the wheel required {was.value}, and requires {now.value}"
        yield Change(row, PERSON, recipe.file.name, one.place.line, one.text, "", source, note)


def _same(spec: str, other: str) -> bool:
    try:
        return SpecifierSet(spec) == SpecifierSet(other.removesuffix("*"))
    except InvalidSpecifier:
        return spec == other


def _admits(spec: str, exact: str) -> bool:
    return matches(spec, exact.removeprefix("==")) if spec and exact.startswith("==") else True


def cuda(scene: Scene) -> Iterator[Change]:
    """Yield the CUDA versions that upstream's wheels come and go with, and architectures that are others now."""
    old, new = scene.old, scene.new
    here = _here(scene)
    if not here:
        return
    toolkit = next((one for one in new.all(Requirement) if one.name == "cuda-toolkit"), None)
    if toolkit is not None and old.cuda and old.cuda != new.cuda:
        line, made = max(place.line for place in here.values()), ", ".join(here)
        note = f"of upstream's wheels; here {made}: a new one when conda-forge's pinning has it"
        kind, value = (FOLLOWS if new.cuda in here else PERSON), f"{new.cuda} ({toolkit.value})"
        yield Change("CUDA", kind, scene.matrix, line, old.cuda, value, shown(toolkit.where), note)
    was, now = (_shipped(one) for one in (old, new))
    for version, place in here.items():
        # a list that is not of the old tag itself may lack what the tag had
        had = version in was or any(fact.where.inferred for fact in was.values())
        if had and now and version not in now:
            note = (
                f"not in upstream's list, which has {', '.join(sorted(now))}; conda-forge's pinning decides"
            )
            if others := ", ".join(_naming(scene, version)):
                note += f"; see also {others}"
            source = shown(next(iter(now.values())).where)
            yield Change("CUDA", PERSON, scene.matrix, place.line, version, "", source, note)
    for ours in (one for row in scene.rows for one in row.all(RecipeArchs) if one.recipe == scene.package):
        before, after = (known.get(ours.holds.cuda[0]) for known in (was, now))
        if (
            isinstance(before, UpstreamArchs)
            and isinstance(after, UpstreamArchs)
            and before.archs != after.archs
        ):
            lists = (" ".join(before.archs), " ".join(after.archs))
            note = f"upstream's for CUDA {ours.holds.cuda[0]}; here {' '.join(ours.archs)}"
            where = ours.where
            yield Change("architectures", PERSON, where.file, where.line, *lists, shown(after.where), note)


def _here(scene: Scene) -> dict[str, Scalar]:
    """Return the CUDA versions of conda-forge's rows that move, each with its line."""
    spaces = dict.fromkeys(row.space for row in scene.rows_with_old if row.space[1] == "conda-forge")
    here: dict[str, Scalar] = {}
    if variants := scene.variants:
        for space in spaces:
            left_out = {"None", *(one.value for one in variants.values("cuda_not_yet", space))}
            here |= {one.value: one for one in variants.values(CUDA, space) if one.value not in left_out}
    return here


def _naming(scene: Scene, version: str) -> Iterator[str]:
    """Yield the places of recipes that name a CUDA version."""
    for recipe in scene.recipes:
        for number, line in enumerate(recipe.file.lines, start=1):
            if f'"{version}"' in line:
                yield f"{recipe.file.name}:{number}"


def _shipped(release: Release) -> Mapping[str, Fact]:
    """Return what says that upstream's wheels are built for a CUDA version, a list of architectures if there is one."""
    pins = [one for one in release.all(CiPin) if (one.name, one.what) == ("cuda", _SHIPPED)]
    facts: list[Fact] = [*release.all(UpstreamArchs), *pins]
    return {version: fact for fact in reversed(facts) for version in fact.holds.cuda if version != "None"}


def back_end(scene: Scene) -> Iterator[Change]:
    """Yield what another build back end means for the requirements and for the scripts beside the recipe."""
    was, now = scene.old.back_end, scene.new.back_end
    if not now.value or not was.value or was.value == now.value:
        return
    for recipe in scene.recipes:
        file = recipe.file.name
        asked = [one for one in recipe.asked if one.name in (was.value, now.value) and one.section != "run"]
        have = [
            one.place.line
            for one in asked
            if one.name == now.value and one.holds(scene.key, scene.new.version)
        ]
        scripts = _running_setup_py(scene, recipe)
        if have:
            note = f"the recipe has it in lines {', '.join(map(str, have))}"
            yield Change("back end", FOLLOWS, file, have[0], was.value, now.value, now.source, note)
        elif scripts or asked:
            note = "requirement of host; what runs setup.py must change" + (
                f": {', '.join(scripts)}" if scripts else ""
            )
            line = asked[0].place.line if asked else None
            yield Change("back end", PERSON, file, line, was.value, now.value, now.source, note)


def _running_setup_py(scene: Scene, recipe: Recipe) -> list[str]:
    """Return the places in build scripts beside a recipe that run setup.py."""
    folder = (scene.root / recipe.file.name).parent
    found = []
    for path in sorted(one for one in folder.iterdir() if one.suffix in (".sh", ".bat") and one.is_file()):
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), start=1):
            if "setup.py" in line.partition("#")[0]:
                found.append(f"{path.relative_to(scene.root)}:{number}")
    return found


def conditions(scene: Scene) -> Iterator[Change]:
    """Yield the recipes' conditions on the version whose answer is another one now."""
    for recipe in scene.recipes:
        for number, key, spec in recipe.conditions:
            answers = [matches(spec, one.version) for one in (scene.old, scene.new)]
            if key == scene.key and answers[0] != answers[1]:
                was, now = ("yes" if one else "no" for one in answers)
                note = recipe.file.lines[number - 1].strip()
                yield Change("by version", FOLLOWS, recipe.file.name, number, was, now, "the recipe", note)
