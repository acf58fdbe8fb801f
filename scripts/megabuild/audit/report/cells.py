"""What stands in a row's cells: short texts, each with an address and where it holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rattler import Version

from megabuild.audit.archs import ArchRow
from megabuild.audit.case import Status, excludes, is_optional
from megabuild.audit.commits import brief
from megabuild.audit.facts import (
    UPSTREAM,
    Build,
    CiPin,
    Fact,
    GlobalPin,
    Migration,
    Newest,
    RecipeCommit,
    RecipePin,
    Submodule,
    TagCommit,
)
from megabuild.audit.rows import Row
from megabuild.audit.specs import Spec, common, is_version, newest, pin
from megabuild.audit.words import of, of_configs

NOT_READ = "not read"
_ANY = "any"
_MOST_TESTED = 2


@dataclass(frozen=True, kw_only=True)
class Part:
    """One value in a cell.

    Parameters
    ----------
    text:
        The value.
    note:
        Where it holds or who says it, in a few words.
    url:
        Where it was read, for a person to open; may be empty.
    where:
        The note says where the value holds; shown in brackets, as scopes are everywhere.
    """

    text: str
    note: str = ""
    url: str = ""
    where: bool = False

    @property
    def remark(self) -> str:
        """The note with what stands around it: ``[cuda129]``, ``(wheel)``."""
        if not self.note:
            return ""
        return f"[{self.note}]" if self.where else f"({self.note})"


def upstream(row: Row) -> tuple[Part, ...]:
    """Return what upstream says: its copy, its wheel's requirement, its CI for the CUDA versions of the recipe."""
    here = {build.cuda for build in _asking(row)} - {""}
    pinned = any(isinstance(one, RecipeCommit) for one in row.facts)
    parts: list[Part] = []
    for fact in row.facts:
        if not isinstance(fact, (*UPSTREAM, TagCommit)):
            continue
        note = "extra" if is_optional(fact) else fact.who
        commit = brief(fact.commit) if isinstance(fact, Submodule) else ""
        if fact.trouble:  # of a submodule the commit is known even where nothing describes it
            parts.append(Part(text=commit or NOT_READ, note=note))
            continue
        cuda = fact.holds.cuda
        if fact.holds.elsewhere or (cuda and here and not any(_same_cuda(one, cuda) for one in here)):
            continue
        if commit and pinned:
            note = f"{note}, {commit}"
        if isinstance(fact, CiPin) and not cuda:
            note = ", ".join(filter(None, (note, of(fact.holds, row.builds))))
        elif cuda and len(here) != 1:
            note = f"{note}, CUDA {', '.join(cuda)}"
        value = brief(fact.value) if isinstance(fact, TagCommit) else fact.value
        text = _ANY if value in ("", "*") else re.sub(r"^={2,3}(?=[^,]*$)", "", value)
        parts.append(Part(text=text, note=note, url=fact.where.url))
    if any(part.text != NOT_READ for part in parts):
        parts = [part for part in parts if part.text != NOT_READ]
    return tuple(_without_cuda(part, here) for part in _ranged(_merged(parts)))


def _asking(row: Row) -> list[Build]:
    """Return the configs for which the recipe asks for it."""
    asked = [one for one in row.facts if isinstance(one, RecipePin)]
    return [build for build in row.builds if any(one.holds.met(build) for one in asked)]


def _same_cuda(version: str, named: Sequence[str]) -> bool:
    return version in named or version.partition(".")[0] in named


def _without_cuda(part: Part, here: set[str]) -> Part:
    """Leave out the CUDA versions for which a value holds, where those are all that the recipe has."""
    words = part.note.split(", ")
    named = {word.removeprefix("CUDA ") for word in words if word.startswith("CUDA ")}
    if not here or not named >= here:
        return part
    return replace(part, note=", ".join(word for word in words if not word.startswith("CUDA ")))


def _ranged(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Put many versions of upstream's CI, by Python and the like, into one value."""
    tested = [part for part in parts if part.note.startswith("CI") and is_version(part.text)]
    if len(tested) <= _MOST_TESTED:
        return parts
    ordered = sorted((part.text for part in tested), key=Version)
    one = Part(text=f"{ordered[0]} to {ordered[-1]}", note="CI", url=tested[0].url)
    return (one, *(part for part in parts if part not in tested))


def recipe(row: Row) -> tuple[Part, ...]:
    """Return what the recipe asks for; a bare name beside pinned ones, and build strings that differ, are left out."""
    found = [one for one in row.facts if isinstance(one, RecipePin) and not one.trouble and not excludes(one)]
    pinned = [one for one in found if one.value != "*"]
    covered = {config for one in pinned for config in one.holds.configs}
    rest = [one for one in found if one.value == "*" and set(one.holds.configs) - covered]
    values: dict[str, list[RecipePin]] = {}
    for one in [*pinned, *rest]:
        text = _ANY if one.value == "*" else one.value.partition(" ")[0]
        if text == "*":  # any version, of one build
            text = one.value
        values.setdefault(text, []).append(one)
    commits = tuple(_commit(one, row) for one in row.facts if isinstance(one, RecipeCommit))
    if row.name == "python":
        return (Part(text=_python(", ".join(values))), *commits) if values else commits
    notes = {text: _scopes(those, row.builds) for text, those in values.items()}
    if len(values) > 1 and len(set(notes.values())) < len(values):  # the same configs: then it is the section
        notes = {text: _sections(those, row.builds) for text, those in values.items()}
    asked = (Part(text=text, note=notes[text] if len(values) > 1 else "", where=True) for text in values)
    return (*asked, *commits)


def _commit(fact: RecipeCommit, row: Row) -> Part:
    """Return a commit that a recipe pins, with whose recipe that is."""
    scope = of_configs(fact.holds.configs, row.builds)
    words = [word for word in (fact.recipe if fact.recipe != row.name else "", scope) if word]
    return Part(text=brief(fact.value) or _ANY, note=", ".join(words), where=True)


def _sections(facts: Sequence[RecipePin], builds: Sequence[Build]) -> str:
    words = {word for one in facts for word in one.sections}
    return ", ".join([*filter(None, [_scopes(facts, builds)]), *sorted(words)])


def conda_forge(row: Row) -> tuple[Part, ...]:
    """Return the global pin, where it is being migrated to, and the newest version in the channel.

    Left out: pins for platforms for which the recipe does not ask for it, and paused migrations, unless the recipe is
    ahead with one.
    """
    here = {build.platform for build in _asking(row)}
    parts: list[Part] = []
    asked = [Spec(one.value) for one in row.facts if isinstance(one, RecipePin) and one.value != "*"]
    pinned = [one for one in row.facts if isinstance(one, GlobalPin)]
    pins = [pin(value) for one in pinned if not isinstance(one, Migration) for value in one.values]
    ahead = [
        one
        for one in asked
        if one.readable and not any(common([one, other]) for other in pins if other.readable)
    ]
    for fact in pinned:
        where = set(fact.holds.platforms)
        values = dict.fromkeys(value for value in fact.values if value != "None")
        if not values or (here and where and not where & here):
            continue
        notes = [f"migration {fact.migration}" if isinstance(fact, Migration) else "pin"]
        wanted = any(common([one, pin(value)]) for one in ahead for value in fact.values)
        if isinstance(fact, Migration) and fact.paused and not wanted:
            continue
        if where and not where >= here:
            notes.append(_systems(where))
        text = _python(", ".join(values)) if row.name == "python" else ", ".join(values)
        parts.append(Part(text=text, note=", ".join(notes), url=fact.where.url))
    return (*_merged(parts), *_newest(row))


def _systems(platforms: Iterable[str]) -> str:
    """Return platforms in short: ``linux`` for both of Linux."""
    found = sorted(platforms)
    for system in ("linux", "osx"):
        both = [name for name in found if name.startswith(system)]
        if len(both) > 1:
            found = [name for name in found if name not in both] + [system]
    return ", ".join(sorted(found))


def _newest(row: Row) -> tuple[Part, ...]:
    by_version: dict[str, list[Newest]] = {}
    for one in row.facts:
        if isinstance(one, Newest) and not one.trouble:
            by_version.setdefault(one.value, []).append(one)
    best = newest(by_version)
    parts = []
    for version, facts in sorted(by_version.items(), key=lambda item: item[0] != best):
        where = {name for one in facts for name in one.holds.platforms}
        note = "newest" if version == best or not where else f"newest, {_systems(where)}"
        parts.append(Part(text=version, note=note, url=facts[0].where.url))
    return tuple(parts)


def says_nothing(row: Row) -> bool:
    """Whether there is nothing to compare: the recipe asks for a name, and nobody names a version."""
    parts = recipe(row)
    return (
        all(part.text == _ANY or part.text.startswith("* ") for part in parts)
        and not upstream(row)
        and not conda_forge(row)
        and row.status is Status.UNPINNED
    )


def upstream_archs(row: ArchRow) -> tuple[Part, ...]:
    """Return upstream's lists of architectures."""
    return tuple(
        Part(text=" ".join(one.archs) or one.value, note=", ".join(one.holds.platforms), url=one.where.url)
        for one in row.upstream
        if (one.archs or one.value) and not one.trouble
    )


def recipe_archs(row: ArchRow) -> Mapping[str, list[str]]:
    """Return the recipes' lists of architectures, with where they hold, and whose each is."""
    found: dict[str, list[str]] = {}
    for one in row.recipes:
        scope = f" [{', '.join(one.holds.platforms)}]" if one.holds.platforms else ""
        found.setdefault(" ".join(one.archs) + scope, []).append(one.recipe)
    return found


def _merged(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Put together who says the same."""
    found: dict[str, Part] = {}
    for part in parts:
        other = found.get(part.text)
        if other is None:
            found[part.text] = part
        else:
            notes = dict.fromkeys(word for one in (other, part) for word in one.note.split(", ") if word)
            found[part.text] = Part(text=part.text, note=", ".join(notes), url=other.url or part.url)
    return tuple(found.values())


def _scopes(facts: Sequence[Fact], builds: Sequence[Build]) -> str:
    """Return where a value holds, without what is said already: ``cuda130 mkl`` beside ``cuda130``."""
    scopes = [of_configs(one.holds.configs, builds) for one in facts]
    terms = {frozenset(term.split()): term for scope in scopes if scope for term in scope.split(", ")}
    return ", ".join(
        sorted(text for words, text in terms.items() if not any(other < words for other in terms))
    )


def _python(text: str) -> str:
    """Return several Pythons in short: ``3.10 to 3.13``."""
    numbers = sorted(
        set(re.findall(r"(?<![\w.])3\.\d+", text)), key=lambda one: [int(part) for part in one.split(".")]
    )
    if len(numbers) > 1:
        return f"{numbers[0]} to {numbers[-1]}"
    return text.replace(" *_cp", " cp").partition(" ")[0] if text.startswith("3") else text
