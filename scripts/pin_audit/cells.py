"""The contents of a row's cells: short texts, each with an address and a scope."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pin_audit.commits import short_revision
from pin_audit.constraints import AuditRow, Status, excludes, is_optional
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
from pin_audit.versions import Spec, common, newest, pin

NOT_READ = "not read"
INFERRED = "inferred"
_ANY = "any"
_MANY = 3
_PYTHON = re.compile(r"(?<![\w.])3\.(\d+)(?:\.\*)?(?: \*_cp3\d+(t)\b)?")
_FREE = re.compile(r"_cp3\d+t\b")  # a build of Python without the GIL


@dataclass(frozen=True, kw_only=True)
class CellPart:
    """One value in a cell."""

    text: str
    scope: str = ""  #: where it holds, in a few words; shown in brackets, as scopes are everywhere
    notes: tuple[str, ...] = ()  #: its source, and the like; shown in parentheses
    url: str = ""  #: where it was read, for a person to open; may be empty

    def __str__(self) -> str:
        return f"{self.text} {self.remark}".strip()

    @property
    def remark(self) -> str:
        """What follows the value: ``[cuda129]``, ``(wheel)``."""
        scope, notes = self.scope, ", ".join(filter(None, self.notes))
        return f"{f'[{scope}]' if scope else ''} {f'({notes})' if notes else ''}".strip()


Cells = Mapping[str, Sequence[CellPart]]


def cells(row: AuditRow) -> Cells:
    """Return a row's cells: ``upstream``, ``recipe`` and ``conda-forge``."""
    if row.all(UpstreamArchs, RecipeArchs):
        return {"upstream": _upstream_archs(row), "recipe": _recipe_archs(row), "conda-forge": ()}
    return {"upstream": _upstream(row), "recipe": _recipe(row), "conda-forge": _conda_forge(row)}


def count_cells(rows: Iterable[AuditRow]) -> dict[str, int]:
    """Return how many cells of a table are filled, inferred (among those), and not read."""
    found = {"filled": 0, INFERRED: 0, NOT_READ: 0}
    for row in rows:
        for column, parts in cells(row).items():
            known = [part for part in parts if part.text != NOT_READ]
            missed = column == "upstream" and (
                row.status is Status.UNKNOWN or (bool(row.use) and "submodules" in row.troubles)
            )
            missed |= column == "conda-forge" and any(fact.trouble for fact in row.all(Newest))
            found[NOT_READ] += not known and (bool(parts) or bool(missed))
            found["filled"] += bool(known)
            found[INFERRED] += any(INFERRED in part.notes for part in known)
    return found


def has_no_version(row: AuditRow) -> bool:
    """Whether nobody names a version of it."""
    found = cells(row)
    bare = all(part.text == _ANY or part.text.startswith("* ") for part in found["recipe"])
    return bare and not found["upstream"] and not found["conda-forge"] and row.status is Status.UNPINNED


def _upstream(row: AuditRow) -> Sequence[CellPart]:
    """Return upstream's versions: its copy, its wheel's requirement, its CI for the CUDA versions of the recipe."""
    here = {build.cuda for build in _asking(row)} - {""}
    pinned = bool(row.all(RecipeCommit))
    parts: list[CellPart] = []
    for fact in row.all(*UPSTREAM, TagCommit):
        shipped = isinstance(fact, CiPin) and fact.shipped
        notes = ["extra" if is_optional(fact) else "wheel" if shipped else fact.who]
        commit = short_revision(fact.commit) if isinstance(fact, Submodule) else ""
        if fact.trouble:  # of a submodule the commit is known even where nothing describes it
            parts.append(CellPart(text=commit or NOT_READ, notes=(*notes,)))
            continue
        cuda = fact.holds.cuda
        if (
            cuda
            and here
            and here.isdisjoint(cuda)
            and {one.partition(".")[0] for one in here}.isdisjoint(cuda)
        ):
            continue
        if pinned:
            notes.append(commit)
        if isinstance(fact, CiPin) and not cuda:
            notes += fact.holds.words(row.builds).split(", ")
        elif len(here) != 1:
            notes += [f"CUDA {one}" for one in cuda]
        value = fact.text if isinstance(fact, Submodule) else fact.value
        value = short_revision(value) if isinstance(fact, TagCommit) else value
        text = _ANY if value in ("", "*") else re.sub(r"^={2,3}(?=[^,]*$)", "", value)
        if fact.where.inferred and not fact.where.index:  # a header in the wheel is the release's own
            notes.append(INFERRED)
        parts.append(CellPart(text=text, notes=(*notes,), url=fact.where.url))
    if any(part.text != NOT_READ for part in parts):
        parts = [part for part in parts if part.text != NOT_READ]
    everywhere = {f"CUDA {one}" for one in here}
    return [
        replace(part, notes=tuple(note for note in part.notes if note not in everywhere))
        if everywhere <= set(part.notes)
        else part
        for part in _merge_notes(parts)
    ]


def _asking(row: AuditRow) -> list[Build]:
    """Return the configs for which the recipe asks for it."""
    return [build for build in row.builds if any(fact.holds.matches(build) for fact in row.all(RecipePin))]


def _recipe(row: AuditRow) -> Sequence[CellPart]:
    """Return what the recipe asks for; a bare name beside pinned ones, and build strings that differ, are left out."""
    found = [fact for fact in row.all(RecipePin) if not fact.trouble and not excludes(fact)]
    pinned = [one for one in found if one.value != "*"]
    covered = {config for fact in pinned for config in fact.holds.configs}
    rest = [one for one in found if one.value == "*" and set(one.holds.configs) - covered]
    values: dict[str, list[RecipePin]] = {}
    for fact in [*pinned, *rest]:
        text = _ANY if fact.value == "*" else fact.value.partition(" ")[0]
        if text == "*":  # any version, of one build
            text = fact.value
        values.setdefault(text, []).append(fact)
    commits = [_commit(fact, row) for fact in row.all(RecipeCommit)]
    if row.name == "python":
        return [*_python_parts(values, row), *commits]
    scopes = {
        text: config_words({name for one in those for name in one.holds.configs}, row.builds)
        for text, those in values.items()
    }
    if len(set(scopes.values())) < len(values):  # the same configs: then it is the section
        for text, those in values.items():
            sections = sorted({word for one in those for word in one.sections})
            scopes[text] = ", ".join(filter(None, [scopes[text], *sections]))
    return [
        *(CellPart(text=text, scope=scopes[text] if len(values) > 1 else "") for text in values),
        *commits,
    ]


def _python_parts(values: Mapping[str, Sequence[RecipePin]], row: AuditRow) -> Iterable[CellPart]:
    """Yield the Pythons in short; those without the GIL apart, with the configs that build for them."""
    free = {text: pins for text, pins in values.items() if any(_FREE.search(one.value) for one in pins)}
    if rest := [
        one.value
        for text, pins in values.items()
        for one in pins
        if text not in free or not _FREE.search(one.value)
    ]:
        yield CellPart(text=_python(", ".join(rest)))
    threads = [one for pins in free.values() for one in pins if _FREE.search(one.value)]
    if threads:
        scope = config_words({name for one in threads for name in one.holds.configs}, row.builds)
        yield CellPart(text=_python(", ".join(one.value for one in threads)), scope=scope)


def _commit(fact: RecipeCommit, row: AuditRow) -> CellPart:
    """Return a commit that a recipe pins, with whose recipe that is."""
    words = (fact.recipe if fact.recipe != row.name else "", config_words(fact.holds.configs, row.builds))
    return CellPart(text=short_revision(fact.value) or _ANY, scope=", ".join(filter(None, words)))


def _conda_forge(row: AuditRow) -> Sequence[CellPart]:
    """Return the global pin, where it is being migrated to, and the newest version in the channel.

    Left out: pins for platforms for which the recipe does not ask for it, and paused migrations, unless the recipe is
    ahead with one.
    """
    here = {build.platform for build in _asking(row)}
    parts: list[CellPart] = []
    asked = [Spec(fact.value) for fact in row.all(RecipePin) if fact.value != "*"]
    pinned = row.all(GlobalPin)
    pins = [pin(value) for fact in pinned if not isinstance(fact, Migration) for value in fact.values]
    readable = [one for one in pins if one.readable]
    ahead = [one for one in asked if one.readable and not any(common([one, other]) for other in readable)]
    for fact in pinned:
        where = set(fact.holds.platforms)
        values = dict.fromkeys(value for value in fact.values if value != "None")
        if not values or (here and where and not where & here):
            continue
        notes = [f"migration {fact.migration}" if isinstance(fact, Migration) else "pin"]
        if fact.holds.cuda:
            notes[0] += f" for {Scope(cuda=fact.holds.cuda).words(())}"
        wanted = any(common([one, pin(value)]) for one in ahead for value in fact.values)
        if isinstance(fact, Migration) and fact.paused and not wanted:
            continue
        if where and not where >= here:
            notes += short_platforms(where)
        if fact.where.inferred:
            notes.append(INFERRED)
        text = _python(", ".join(values)) if row.name == "python" else ", ".join(values)
        parts.append(CellPart(text=text, notes=(*notes,), url=fact.where.url))
    shown = {part.text for part in parts}
    for own in row.all(FeedstockPin):  # as far as it is not rendered with the pins as they are
        text = _python(own.value) if row.name == "python" else own.value
        if (
            own.value != "None"
            and text not in shown
            and any(own.holds.matches(build) for build in row.builds)
        ):
            words = filter(
                None, (*short_platforms(own.holds.platforms), Scope(cuda=own.holds.cuda).words(()))
            )
            parts.append(CellPart(text=text, notes=(" ".join(("feedstock", *words)),), url=own.where.url))
    return [*_merge_notes(parts), *_newest(row)]


def _newest(row: AuditRow) -> list[CellPart]:
    by_version: dict[str, list[Newest]] = {}
    for fact in row.all(Newest):
        if not fact.trouble:
            by_version.setdefault(fact.value, []).append(fact)
    best = newest(by_version)
    parts = []
    for version, facts in sorted(by_version.items(), key=lambda item: item[0] != best):
        where = {name for fact in facts for name in fact.holds.platforms}
        read = facts[0].where
        newest_on = f"newest on {read.fetched[:10]}" if read.inferred else "newest"
        notes = (newest_on, *(() if version == best else short_platforms(where)))
        parts.append(CellPart(text=version, notes=notes, url=facts[0].where.url))
    return parts


def _upstream_archs(row: AuditRow) -> Sequence[CellPart]:
    return [
        CellPart(
            text=" ".join(fact.archs) or fact.value,
            notes=(
                *(["wheel" if fact.where.index else "CI"] if fact.archs else []),
                *fact.holds.platforms,
                *([INFERRED] if fact.where.inferred else []),
            ),
            url=fact.where.url,
        )
        for fact in row.all(UpstreamArchs)
        if (fact.archs or fact.value) and not fact.trouble
    ]


def _recipe_archs(row: AuditRow) -> Sequence[CellPart]:
    """Return the recipes' lists, with where they hold, and whose each is: ``all recipes``, ``all but pyg-lib``."""
    ours = row.all(RecipeArchs)
    everybody = {one.recipe for one in ours}
    found: dict[tuple[str, str], set[str]] = {}
    for one in ours:
        found.setdefault((" ".join(one.archs), ", ".join(one.holds.platforms)), set()).add(one.recipe)
    parts = []
    for (archs, scope), names in found.items():
        others = everybody - names
        whose = ", ".join(sorted(names))
        if len(everybody) >= _MANY and len(names) > len(others):
            whose = f"all but {', '.join(sorted(others))}" if others else "all recipes"
        parts.append(CellPart(text=archs, scope=scope, notes=(whose,)))
    return parts


def _merge_notes(parts: Iterable[CellPart]) -> list[CellPart]:
    """Merge parts with the same text."""
    found: dict[str, CellPart] = {}
    for part in parts:
        other = found.get(part.text, part)
        notes = tuple(dict.fromkeys((*other.notes, *part.notes)))
        found[part.text] = replace(part, notes=notes, url=other.url or part.url)
    return list(found.values())


def _python(text: str) -> str:
    """Return several Pythons in short: ``3.10 to 3.13, 3.14t``."""
    if any(sign in text for sign in "<>=!~"):
        return text
    found = {(int(minor), free) for minor, free in _PYTHON.findall(text)}
    minors = sorted(minor for minor, free in found if not free)
    whole = len(minors) > 2 and minors == [*range(minors[0], minors[-1] + 1)]
    shown = [f"3.{minors[0]} to 3.{minors[-1]}"] if whole else [f"3.{minor}" for minor in minors]
    return ", ".join([*shown, *(f"3.{minor}t" for minor, free in sorted(found) if free)]) or text
