"""The Pythons that the new release is for, against those of the matrix and of the recipe."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from groundwork.errors import ConfigError
from megabuild.configs.config import python_version
from pin_audit.bump.changes import CERTAIN, PERSON, Change, Edit
from pin_audit.bump.places import Scalar, VariantFile
from pin_audit.bump.scene import Scene


def pythons(scene: Scene) -> Iterator[Change]:
    """Yield what Requires-Python and the wheels' tags change."""
    old, new = scene.old, scene.new
    said = new.requires_python
    if not said.value:
        return
    source = f"{said.source}: {said.value}"
    for recipe in scene.recipes:
        for asked in recipe.asked:
            if asked.name == "python" and asked.spec == old.requires_python.value != said.value:
                yield scene.line("python", recipe, asked, f"python {said.value}", source)
    if scene.variants is None or not scene.rows_with_old:
        return
    places, file = _places(scene, scene.variants), scene.matrix
    for provider, found in places.items():
        gone = [one for one, python in found.items() if not fits(said.value, python)]
        edits, trouble = _left_out(scene, scene.variants, provider, gone)
        for one in gone:
            to = f"not for {provider}"
            yield Change(
                "python",
                PERSON if trouble else CERTAIN,
                file,
                one.line,
                one.value,
                to,
                source,
                trouble,
                edits,
            )
    for base in scene.variants.values("torch_python_base"):
        if not fits(said.value, base.value):
            note = "the Python that libtorch is compiled against: choose another one"
            yield Change("python", PERSON, file, base.line, base.value, "", source, note)
    here = {python: one.line for found in places.values() for one, python in found.items()}
    more = [one for one in new.pythons if one not in here and old.pythons and one not in old.pythons]
    if here and more:
        note = f"{new.version} has wheels for it, {old.version} has none: conda-forge's migrations decide"
        yield Change(
            "python", PERSON, file, max(here.values()), "", ", ".join(more), "the wheels' tags", note
        )


def _places(scene: Scene, variants: VariantFile) -> dict[str, dict[Scalar, str]]:
    """Return the matrix's Pythons by provider; what a wheel is not for is left out by its own metadata."""
    found: dict[str, dict[Scalar, str]] = {}
    for row in scene.rows_with_old:
        for one in variants.values("python", row.space) if not row.stays and row.space[1] != "wheel" else ():
            try:
                found.setdefault(row.space[1], {})[one] = python_version(one.value)
            except ConfigError:
                continue
    return found


def _left_out(
    scene: Scene, variants: VariantFile, provider: str, gone: list[Scalar]
) -> tuple[tuple[Edit, ...], str]:
    """Return the edits that leave Pythons to the other providers, or why a person must make them."""
    edits = {one.line: variants.without(one, provider) for one in gone}
    flags: dict[str, list[Scalar]] = {}
    for space in (one for one in scene.spaces if one[1] == provider and gone):
        for key in variants.zipped("python", space):
            values = variants.values(key, space)
            if key == "python":
                continue
            # a flag for the first Python: any of the others that every platform has may go instead of it
            if [one.value for one in values] != ["true", *["false"] * (len(values) - 1)]:
                return (), f"{key} is zipped with it, and is no flag for the first Python"
            flags[key] = [one for one in flags.get(key, values) if one in values[1:]]
    for key, values in flags.items():
        if len(values) < len(gone):
            return (), f"{key} is zipped with it, and has not as many values for every platform"
        edits.update((one.line, variants.without(one, provider)) for one in values[-len(gone) :])
    return tuple(edits.values()), ""


def fits(specifiers: str, python: str) -> bool:
    """Whether Requires-Python admits a Python; one that cannot be read does."""
    try:
        return SpecifierSet(specifiers).contains(f"{python.removesuffix('t')}.99")
    except InvalidSpecifier:
        return True
