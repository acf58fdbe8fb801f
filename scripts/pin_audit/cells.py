"""The contents of a row's cells: short texts, each with an address and a scope."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pin_audit.commits import short_revision
from pin_audit.facts import (
    UPSTREAM,
    Build,
    CiPin,
    FeedstockPin,
    GlobalPin,
    Migration,
    Newest,
    RecipeArchs,
    RecipeCommit,
    RecipePin,
    Scope,
    Submodule,
    TagCommit,
    UpstreamArchs,
    config_words,
    short_platforms,
)
from pin_audit.rows import AuditRow, excludes, is_optional
from pin_audit.versions import Spec, common, newest, pin

_PYTHON = re.compile(r"(?<![\w.])3\.(\d+)(?:\.\*)?(?: \*_cp3\d+(t)\b)?")
_FREE = re.compile(r"_cp3\d+t\b")  # a build of Python without the GIL


@dataclass(frozen=True, kw_only=True)
class CellPart:
    """One value in a cell."""

    text: str
    scope: str = ""  #: where it holds, in a few words; shown in brackets
    notes: tuple[str, ...] = ()  #: its source, and the like; shown in parentheses
    url: str = ""  #: where it was read, for a person to open; may be empty

    @property
    def remark(self) -> str:
        """What follows the value: ``[cuda129]``, ``(wheel)``."""
        notes = ", ".join(filter(None, self.notes))
        return f"{f'[{self.scope}]' if self.scope else ''} {f'({notes})' if notes else ''}".strip()


def cells(row: AuditRow) -> Mapping[str, Sequence[CellPart]]:
    """Return a row's cells: ``upstream``, ``recipe`` and ``conda-forge``."""
    if row.all(UpstreamArchs, RecipeArchs):
        return {"upstream": _upstream_archs(row), "recipe": _recipe_archs(row), "conda-forge": ()}
    asking = [build for build in row.builds if any(fact.holds.matches(build) for fact in row.all(RecipePin))]
    return {
        "upstream": _upstream(row, asking),
        "recipe": _recipe(row),
        "conda-forge": [*_conda_forge(row, asking), *_newest(row)],
    }


def _upstream(row: AuditRow, asking: Sequence[Build]) -> Sequence[CellPart]:
    """Return upstream's versions: its copy, its wheel's requirement, its CI for the CUDA versions of the recipe."""
    here = {build.cuda for build in asking} - {""}
    with_majors = here | {cuda.partition(".")[0] for cuda in here}
    pinned = bool(row.all(RecipeCommit))
    parts: list[CellPart] = []
    unread: list[CellPart] = []
    for fact in row.all(*UPSTREAM, TagCommit):
        shipped = isinstance(fact, CiPin) and fact.shipped
        notes = ["extra" if is_optional(fact) else "wheel" if shipped else fact.who]
        commit = short_revision(fact.commit) if isinstance(fact, Submodule) else ""
        cuda = fact.holds.cuda
        if fact.trouble:  # of a submodule the commit is known even where nothing describes it
            known = parts if commit else unread
            known.append(CellPart(text=commit or "not read", notes=(*notes,)))
            continue
        if cuda and here and with_majors.isdisjoint(cuda):
            continue
        if pinned:
            notes.append(commit)
        if isinstance(fact, CiPin) and not cuda:
            notes += fact.holds.words(row.builds).split(", ")
        elif len(here) != 1 and not here <= {*cuda}:
            notes += [f"CUDA {version}" for version in cuda]
        value = fact.text if isinstance(fact, Submodule) else fact.value
        value = short_revision(value) if isinstance(fact, TagCommit) else value
        if fact.where.inferred and not fact.where.index:  # a header in the wheel is the release's own
            notes.append("inferred")
        text = "any" if value in ("", "*") else re.sub(r"^={2,3}(?=[^,]*$)", "", value)
        parts.append(CellPart(text=text, notes=(*notes,), url=fact.where.url))
    return _merge(parts or unread)


def _recipe(row: AuditRow) -> Sequence[CellPart]:
    """Return what the recipe asks for; a bare name beside pinned ones, and build strings that differ, are left out."""
    facts = [fact for fact in row.all(RecipePin) if not fact.trouble and not excludes(fact)]
    covered = {config for fact in facts if fact.value != "*" for config in fact.holds.configs}
    facts.sort(key=lambda fact: fact.value == "*")
    values: dict[str, list[RecipePin]] = {}
    for fact in facts:
        if fact.value != "*" or {*fact.holds.configs} - covered:
            text = "any" if fact.value == "*" else fact.value.partition(" ")[0]
            values.setdefault(fact.value if text == "*" else text, []).append(
                fact
            )  # any version, of one build
    commits = [
        CellPart(
            text=short_revision(fact.value) or "any",
            scope=", ".join(
                filter(
                    None,
                    (
                        fact.recipe if fact.recipe != row.name else "",
                        config_words(fact.holds.configs, row.builds),
                    ),
                )
            ),
        )
        for fact in row.all(RecipeCommit)
    ]
    if row.name == "python":
        return [*_pythons([fact for pins in values.values() for fact in pins], row), *commits]
    scopes = {text: _scope(pins, row) for text, pins in values.items()}
    if len(set(scopes.values())) < len(values):  # the same configs: then it is the section
        for text, pins in values.items():
            sections = sorted({section for fact in pins for section in fact.sections})
            scopes[text] = ", ".join(filter(None, [scopes[text], *sections]))
    parts = [CellPart(text=text, scope=scopes[text] if len(values) > 1 else "") for text in values]
    return [*parts, *commits]


def _scope(pins: Iterable[RecipePin], row: AuditRow) -> str:
    return config_words({config for fact in pins for config in fact.holds.configs}, row.builds)


def _pythons(pins: Sequence[RecipePin], row: AuditRow) -> Iterable[CellPart]:
    """Yield the Pythons in short; those without the GIL apart, with the configs that build for them."""
    free = [fact for fact in pins if _FREE.search(fact.value)]
    if rest := [fact.value for fact in pins if fact not in free]:
        yield CellPart(text=_shorten(", ".join(rest)))
    if free:
        yield CellPart(text=_shorten(", ".join(fact.value for fact in free)), scope=_scope(free, row))


def _conda_forge(row: AuditRow, asking: Sequence[Build]) -> Sequence[CellPart]:
    """Return the global pin, where it is being migrated to, and the feedstock's value where that differs.

    Left out: pins for platforms for which the recipe does not ask for it, and paused migrations, unless the recipe is
    ahead with one.
    """
    here = {build.platform for build in asking}
    facts = row.all(GlobalPin)
    pinned = [pin(value) for fact in facts if not isinstance(fact, Migration) for value in fact.values]
    asked = [Spec(fact.value) for fact in row.all(RecipePin) if fact.value != "*"]
    ahead = [spec for spec in asked if not any(common([spec, other]) for other in pinned if other.readable)]
    parts: list[CellPart] = []
    for fact in facts:
        where = set(fact.holds.platforms)
        values = dict.fromkeys(value for value in fact.values if value != "None")
        if not values or (here and where and not where & here):
            continue
        wanted = any(common([spec, pin(value)]) for spec in ahead for value in values)
        if isinstance(fact, Migration) and fact.paused and not wanted:
            continue
        scope = Scope(cuda=fact.holds.cuda).words()
        kind = f"migration {fact.migration}" if isinstance(fact, Migration) else "pin"
        notes = [f"{kind} for {scope}" if scope else kind]
        notes += short_platforms(where) if where and not where >= here else []
        notes += ["inferred"] if fact.where.inferred else []
        parts.append(CellPart(text=_shorten_of(row, values), notes=(*notes,), url=fact.where.url))
    shown = {part.text for part in parts}
    for own in row.all(FeedstockPin):  # as far as it is not rendered with the pins as they are
        text = _shorten_of(row, [own.value])
        if own.value != "None" and text not in shown and any(map(own.holds.matches, row.builds)):
            words = (*short_platforms(own.holds.platforms), Scope(cuda=own.holds.cuda).words())
            note = " ".join(filter(None, ("feedstock", *words)))
            parts.append(CellPart(text=text, notes=(note,), url=own.where.url))
    return _merge(parts)


def _newest(row: AuditRow) -> list[CellPart]:
    by_version: dict[str, list[Newest]] = {}
    for fact in row.all(Newest):
        if not fact.trouble:
            by_version.setdefault(fact.value, []).append(fact)
    best = newest(by_version)
    parts = []
    for version, facts in sorted(by_version.items(), key=lambda item: item[0] != best):
        platforms = {name for fact in facts for name in fact.holds.platforms}
        where = facts[0].where
        day = f"newest on {where.fetched[:10]}" if where.inferred else "newest"
        notes = (day, *(() if version == best else short_platforms(platforms)))
        parts.append(CellPart(text=version, notes=notes, url=where.url))
    return parts


def _upstream_archs(row: AuditRow) -> Sequence[CellPart]:
    parts = []
    for fact in row.all(UpstreamArchs):
        if (fact.archs or fact.value) and not fact.trouble:
            source = ("wheel" if fact.where.index else "CI") if fact.archs else ""
            notes = (source, *fact.holds.platforms, "inferred" if fact.where.inferred else "")
            parts.append(CellPart(text=" ".join(fact.archs) or fact.value, notes=notes, url=fact.where.url))
    return parts


def _recipe_archs(row: AuditRow) -> Sequence[CellPart]:
    """Return the recipes' lists, with where they hold, and whose each is: ``all but pyg-lib``."""
    facts = row.all(RecipeArchs)
    everybody = {fact.recipe for fact in facts}
    lists: dict[tuple[str, str], set[str]] = {}
    for fact in facts:
        lists.setdefault((" ".join(fact.archs), ", ".join(fact.holds.platforms)), set()).add(fact.recipe)
    parts = []
    for (archs, scope), names in lists.items():
        others = everybody - names
        whose = ", ".join(sorted(names))
        if len(names) > max(1, len(others)):
            whose = f"all but {', '.join(sorted(others))}" if others else "all recipes"
        parts.append(CellPart(text=archs, scope=scope, notes=(whose,)))
    return parts


def _merge(parts: Iterable[CellPart]) -> list[CellPart]:
    """Merge parts with the same text."""
    merged: dict[str, CellPart] = {}
    for part in parts:
        other = merged.get(part.text, part)
        notes = tuple(dict.fromkeys((*other.notes, *part.notes)))
        merged[part.text] = replace(part, notes=notes, url=other.url or part.url)
    return list(merged.values())


def _shorten_of(row: AuditRow, values: Iterable[str]) -> str:
    text = ", ".join(values)
    return _shorten(text) if row.name == "python" else text


def _shorten(text: str) -> str:
    """Return several Pythons in short: ``3.10 to 3.13, 3.14t``."""
    if any(sign in text for sign in "<>=!~"):
        return text
    pythons = {(int(minor), free) for minor, free in _PYTHON.findall(text)}
    minors = sorted(minor for minor, free in pythons if not free)
    whole = len(minors) > 2 and minors == [*range(minors[0], minors[-1] + 1)]
    shown = [f"3.{minors[0]} to 3.{minors[-1]}"] if whole else [f"3.{minor}" for minor in minors]
    return ", ".join([*shown, *(f"3.{minor}t" for minor, free in sorted(pythons) if free)]) or text
