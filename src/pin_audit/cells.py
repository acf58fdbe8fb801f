"""The cells of a row: each value once, with the configs where it holds and its source."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pin_audit.facts import (
    ANY_VERSION,
    Build,
    CiPin,
    Column,
    Fact,
    GlobalPin,
    Newest,
    RecipeArchs,
    RecipeCommit,
    RecipePin,
    Scope,
    Submodule,
    TagCommit,
    UpstreamArchs,
    UpstreamVersion,
    config_words,
    known,
    short_revision,
)
from pin_audit.rows import AuditRow
from pin_audit.versions import newest

_PYTHON = re.compile(r"(3\.\d+)\.\*(?: \*_cp(?:ython|\d+)(t?))?")  # a free-threaded one has a t
_EQUALS = re.compile(r"^={2,3}(?=[^,]*$)")
_ANY = "any"


@dataclass(frozen=True, kw_only=True)
class CellPart:
    """One value in a cell."""

    text: str
    scope: str = ""  #: the configs where it holds; shown in brackets
    notes: tuple[str, ...] = ()  #: its source and qualifiers; shown in parentheses
    url: str = ""  #: web page of the source; may be empty

    @property
    def remark(self) -> str:
        """The text after the value: ``[cuda129] (wheel)``."""
        notes = ", ".join(filter(None, self.notes))
        words = []
        if self.scope:
            words.append(f"[{self.scope}]")
        if notes:
            words.append(f"({notes})")
        return " ".join(words)


def cells(row: AuditRow) -> dict[Column, list[CellPart]]:
    """Return a row's cells by column, in the columns' order."""
    cells: dict[Column, list[CellPart]] = {}
    for column in Column:
        cells[column] = []
        for parts in COLUMNS[column]:
            cells[column] += parts(row)
    return cells


def _upstream_versions(row: AuditRow) -> Sequence[CellPart]:
    """Return upstream's versions: its copy, its wheel's requirement, its CI for the CUDA versions of the configs."""
    parts: list[CellPart] = []
    unread: list[CellPart] = []
    for fact in row.all(UpstreamVersion, TagCommit):
        if fact.trouble:
            commit = _vendored_commit(fact)
            if commit:  # known even if no tag describes it
                parts.append(CellPart(text=commit, notes=(fact.reader,)))
            else:
                unread.append(CellPart(text="not read", notes=(fact.reader,)))
        elif row.names_where(fact):
            parts.append(CellPart(text=_version(fact), notes=_version_notes(fact, row), url=fact.where.url))
    return _merge(parts or unread)


def _vendored_commit(fact: Fact) -> str:
    if isinstance(fact, Submodule):
        return short_revision(fact.commit)
    return ""


def _version(fact: Fact) -> str:
    if fact.allows_any or not fact.value:
        return _ANY
    if isinstance(fact, TagCommit):
        return short_revision(fact.value)
    return _EQUALS.sub("", fact.value)


def _version_notes(fact: Fact, row: AuditRow) -> tuple[str, ...]:
    notes = [fact.reader]
    if row.all(RecipeCommit):
        notes.append(_vendored_commit(fact))
    if isinstance(fact, CiPin):
        notes += fact.holds.words(row.builds).split(", ")
    # a header inside the wheel belongs to the release, so that its value counts as read
    if fact.where.inferred and not fact.where.index:
        notes.append("inferred")
    return tuple(notes)


def _recipe_versions(row: AuditRow) -> Sequence[CellPart]:
    """Return the recipe's constraints, without bare names of pinned packages and without build strings."""
    configs_of: dict[str, list[str]] = {}
    for fact in _shown_pins(row):
        configs_of.setdefault(_required(row, fact), []).extend(fact.holds.configs)
    texts_in: dict[str, list[str]] = {}
    for text, configs in configs_of.items():
        texts_in.setdefault(config_words(configs, row.builds), []).append(text)
    parts = []
    for scope, texts in texts_in.items():
        if row.is_python:
            texts = [", ".join(texts)]
        for text in texts:
            parts.append(CellPart(text=text, scope=scope if len(texts_in) > 1 else ""))
    return parts


def _shown_pins(row: AuditRow) -> list[RecipePin]:
    facts = [fact for fact in known(row.all(RecipePin)) if not fact.excludes]
    pinning = [fact for fact in facts if not fact.allows_any]
    covered: set[str] = set()
    for fact in pinning:
        covered.update(fact.holds.configs)
    bare = [fact for fact in facts if fact.allows_any and not covered.issuperset(fact.holds.configs)]
    return [*pinning, *bare]


def _required(row: AuditRow, fact: RecipePin) -> str:
    if fact.allows_any:
        return _ANY
    version = _short(row, fact.value).partition(" ")[0]
    if version == ANY_VERSION:  # the requirement is a build, without which the text says nothing
        return fact.value
    return version


def _recipe_commits(row: AuditRow) -> Sequence[CellPart]:
    parts = []
    for fact in row.all(RecipeCommit):
        words = [config_words(fact.holds.configs, row.builds)]
        if fact.recipe != row.name:
            words.insert(0, fact.recipe)
        scope = ", ".join(filter(None, words))
        parts.append(CellPart(text=short_revision(fact.value) or _ANY, scope=scope))
    return parts


def _pins(row: AuditRow) -> Sequence[CellPart]:
    """Return the global pin and its migrations.

    Left out: pins for platforms where the recipe does not require the package, and paused migrations.
    """
    required_on = {build.platform for build in row.builds if _is_required(row, build)}
    parts: list[CellPart] = []
    for fact in row.all(GlobalPin):
        platforms = set(fact.holds.platforms)
        elsewhere = required_on and platforms and required_on.isdisjoint(platforms)
        if elsewhere or fact.is_paused or not fact.versions:
            continue
        notes = [_pin_name(fact)]
        if not required_on <= platforms:
            notes += fact.holds.platforms
        if fact.where.inferred:
            notes.append("inferred")
        versions = ", ".join(dict.fromkeys(fact.versions))
        parts.append(CellPart(text=_short(row, versions), notes=tuple(notes), url=fact.where.url))
    return _merge(parts)


def _is_required(row: AuditRow, build: Build) -> bool:
    return any(fact.holds.matches(build) for fact in row.all(RecipePin))


def _pin_name(fact: GlobalPin) -> str:
    scope = Scope(cuda=fact.holds.cuda).words()
    if scope:
        return f"{fact.origin} for {scope}"
    return fact.origin


def _newest(row: AuditRow) -> Sequence[CellPart]:
    facts = known(row.all(Newest))
    best = newest(fact.value for fact in facts)
    parts = []
    for fact in sorted(facts, key=lambda fact: fact.value != best):
        notes = ["newest"]
        if fact.where.inferred:
            notes = [f"newest in a copy of {fact.where.fetched[:10]}"]
        if fact.value != best:
            notes += fact.holds.platforms
        parts.append(CellPart(text=fact.value, notes=tuple(notes), url=fact.where.url))
    return _merge(parts)


def _upstream_archs(row: AuditRow) -> Sequence[CellPart]:
    parts = []
    for fact in row.all(UpstreamArchs):
        notes = list(fact.holds.platforms)
        if fact.archs:
            notes.insert(0, "wheel" if fact.where.index else "CI")
        if fact.where.inferred:
            notes.append("inferred")
        text = " ".join(fact.archs) or fact.value
        parts.append(CellPart(text=text, notes=tuple(notes), url=fact.where.url))
    return parts


def _recipe_archs(row: AuditRow) -> Sequence[CellPart]:
    facts = row.all(RecipeArchs)
    return [CellPart(text=" ".join(fact.archs), scope=", ".join(fact.holds.platforms)) for fact in facts]


#: For each column, the functions that return the parts of its cell, each for some kinds of facts.
COLUMNS: Mapping[Column, Sequence[Callable[[AuditRow], Sequence[CellPart]]]] = {
    Column.UPSTREAM: (_upstream_versions, _upstream_archs),
    Column.RECIPE: (_recipe_versions, _recipe_commits, _recipe_archs),
    Column.CONDA_FORGE: (_pins, _newest),
}


def _merge(parts: Iterable[CellPart]) -> list[CellPart]:
    merged: dict[str, CellPart] = {}
    for part in parts:
        other = merged.get(part.text, part)
        notes = tuple(dict.fromkeys((*other.notes, *part.notes)))
        merged[part.text] = CellPart(text=part.text, notes=notes, url=other.url or part.url)
    return list(merged.values())


def _short(row: AuditRow, text: str) -> str:
    """Abbreviate Pythons: ``3.12, 3.14t``."""
    if row.is_python:
        return _PYTHON.sub(r"\1\2", text)
    return text
