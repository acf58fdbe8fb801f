"""What a bump starts from: both releases, the recipes, and the rows of the matrix that move to the new one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pin_audit.bump.changes import CERTAIN, FOLLOWS, PERSON, Change, Said
from pin_audit.bump.places import SPACES, Scalar, Space, VariantFile
from pin_audit.bump.recipe import Asked, Recipe
from pin_audit.bump.release import Release
from pin_audit.claims import AuditRow
from pin_audit.names import names
from pin_audit.request import AuditRequest

CUDA = "cuda_compiler_version"


@dataclass(frozen=True)
class MatrixRow:
    """A row of the matrix that has the old version, for one platform and provider."""

    space: Space
    index: int
    place: Scalar
    stays: str = ""  #: why it does not move
    sure: bool = True  #: whether that, or that it moves, is certain


@dataclass(frozen=True)
class Scene:
    """What a bump starts from."""

    root: Path
    package: str
    old: Release
    new: Release
    request: AuditRequest  #: of the new release
    recipes: tuple[Recipe, ...]  #: of the package, the main one first
    others: tuple[Recipe, ...]  #: of the repository's other packages
    variants: VariantFile | None
    rows: tuple[AuditRow, ...] = ()  #: the audit's table at the new release

    @property
    def main(self) -> Recipe:
        """The recipe that has the version."""
        return self.recipes[0]

    @property
    def matrix(self) -> str:
        """The name of conda_build_config.yaml."""
        return self.variants.name if self.variants else ""

    @property
    def key(self) -> str:
        """The key of conda_build_config.yaml that holds the version, or an empty string."""
        version = self.main.version
        return version.key if version else ""

    @cached_property
    def spaces(self) -> tuple[Space, ...]:
        """The platforms and providers that the matrix serves."""
        found = self.variants
        if found is None:
            return ()
        keys = [key for key in ("provider", "target_platform") if found.values(key)]
        return tuple(space for space in SPACES if all(found.values(key, space) for key in keys))

    @cached_property
    def rows_with_old(self) -> tuple[MatrixRow, ...]:
        """The matrix's rows that have the old version; Debian's PyTorch is not upstream's to move."""
        return tuple(self._rows_with_old()) if self.key else ()

    def _rows_with_old(self) -> Iterator[MatrixRow]:
        torch = self.key == "torch_version"
        for space in self.spaces:
            assert self.variants is not None
            cudas = self.variants.values(CUDA, space) if CUDA in self.variants.zipped(self.key, space) else []
            for index, place in enumerate(self.variants.values(self.key, space)):
                if place.value != self.old.version or (torch and space[1] == "debian"):
                    continue
                stays, sure = "", True
                if torch and space[1] == "wheel":
                    stays, sure = self._wheel_row(cudas[index].value if index < len(cudas) else "None")
                yield MatrixRow(space, index, place, stays, sure)

    def _wheel_row(self, cuda: str) -> tuple[str, bool]:
        """Return why a row of official wheels stays, and whether that, or its moving, is certain."""
        version, made = self.new.version, self.new.cuda
        if cuda == "None":
            has = any(one.version.local == "cpu" for one in self.new.wheels)
            return "" if has else f"pip's index has no {version}+cpu", has
        if not made:
            return f"which CUDA {version}'s wheels are for was not read", False
        return "" if made == cuda else f"{version}'s wheels are for CUDA {made}", True

    def builds_others(self, recipe: Recipe) -> bool:
        """Whether a recipe also builds a version that does not move, so that its lines must suit both."""
        for space in self.spaces if self.key else ():
            if (space[1] == "wheel") == (Path(recipe.file.name).parent.name == "wheel"):
                assert self.variants is not None
                moving = [one for one in self.rows_with_old if one.space == space and not one.stays]
                if len(moving) != len(self.variants.values(self.key, space)):
                    return True
        return False

    def asks(self, row: str, *sections: str) -> list[tuple[Recipe, Asked]]:
        """Return what recipes ask for at the new version of a row of names.yaml, in some sections."""
        return [
            (recipe, one)
            for recipe in self.recipes
            for one in recipe.asked
            if names().by_conda(one.name) == row and (not one.section or one.section in sections)
            if one.holds(self.key, self.new.version)
        ]

    def assigned(
        self, topic: str, recipe: Recipe, place: Scalar, said: Said, note: str = ""
    ) -> Iterator[Change]:
        """Yield what gives a value of a recipe, or of the keys that it is taken from, another one."""
        behind = recipe.values.get(place.key)
        if behind is not None and behind != place:
            yield from self.assigned(topic, recipe, behind, said, note)
        elif place.key:
            yield from self._keyed(topic, place.key, said, note)
        elif place.value != said.value:
            yield self._set(topic, recipe.file.name, place, said, note, fit=True)

    def _keyed(self, topic: str, key: str, said: Said, note: str) -> Iterator[Change]:
        """Yield what gives a key of the rows that move another value."""
        if self.variants is None:
            return
        wanted: dict[Scalar, list[MatrixRow]] = {}
        for row in self.rows_with_old:
            values = self.variants.values(key, row.space)
            if key == self.key or self.key in self.variants.zipped(key, row.space):
                values = values[row.index : row.index + 1]
            for one in values:
                wanted.setdefault(one, []).append(row)
        moving = {row.space for row in self.rows_with_old if not row.stays}
        for place, rows in wanted.items():
            row = next((one for one in rows if one.stays), rows[0])
            if place.value in (said.value, "None") or (row.stays and not said.value):
                continue
            if row.stays and row.sure:
                text = f"stays: {row.stays}"
                yield Change(
                    topic, FOLLOWS, self.matrix, place.line, place.value, place.value, said.source, text
                )
                continue
            alone = all(space in moving for space in self.spaces if self.variants.counts(place, space))
            why = row.stays or ("" if alone else "the line counts for rows that stay, too")
            text = "; ".join(filter(None, (why, note)))
            yield self._set(topic, self.matrix, place, said, text, fit=alone and not row.stays)

    def _set(self, topic: str, file: str, place: Scalar, said: Said, note: str, *, fit: bool) -> Change:
        """Return the change of one value, which a person makes where it is not known or does not fit."""
        if not said.value:
            note = "; ".join(filter(None, (f"not known: {said.source}", note)))
            return Change(topic, PERSON, file, place.line, place.value, "", "", note)
        if not fit:
            return Change(topic, PERSON, file, place.line, place.value, said.value, said.source, note)
        known = next((one.file for one in self.recipes if one.file.name == file), self.variants)
        assert known is not None
        edit = known.replaced(place, said.value)
        return Change(topic, CERTAIN, file, place.line, place.value, said.value, said.source, note, (edit,))

    def line(self, topic: str, recipe: Recipe, one: Asked, text: str, source: str) -> Change:
        """Return the change of a requirement's text; where its recipe builds other versions, too, a person's."""
        file, place = recipe.file.name, one.place
        if self.builds_others(recipe):
            note = f"the recipe builds other versions, too: put it under `if: match({self.key}, …)`"
            return Change(topic, PERSON, file, place.line, one.text, text, source, note)
        edit = recipe.file.replaced(place, text)
        return Change(topic, CERTAIN, file, place.line, one.text, text, source, "", (edit,))
