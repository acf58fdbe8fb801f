"""The cells of a row: each value once, with the configs where it holds and its source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pin_audit.facts import (
    UPSTREAM,
    CiPin,
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
    short_revision,
)
from pin_audit.rows import AuditRow, excludes, is_optional
from pin_audit.versions import newest

_PYTHON = re.compile(r"(3\.\d+)\.\*(?: \*_cp(?:ython|\d+)(t?))?")  # a free-threaded one has a t


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
        return f"{f'[{self.scope}]' if self.scope else ''} {f'({notes})' if notes else ''}".strip()


def cells(row: AuditRow) -> tuple[Sequence[CellPart], ...]:
    """Return a row's cells: upstream's, the recipe's and, except for architectures, conda-forge's."""
    if row.all(UpstreamArchs, RecipeArchs):
        return _archs(row)
    return _upstream(row), _recipe(row), [*_conda_forge(row), *_newest(row)]


def _upstream(row: AuditRow) -> Sequence[CellPart]:
    """Return upstream's versions: its copy, its wheel's requirement, its CI for the CUDA versions of the configs."""
    parts: list[CellPart] = []
    unread: list[CellPart] = []
    for fact in row.all(*UPSTREAM, TagCommit):
        shipped = isinstance(fact, CiPin) and fact.shipped
        notes = ["extra" if is_optional(fact) else "wheel" if shipped else fact.who]
        commit = short_revision(fact.commit) if isinstance(fact, Submodule) else ""
        if fact.trouble:  # a submodule's commit is known even if no tag describes it
            (parts if commit else unread).append(CellPart(text=commit or "not read", notes=(*notes,)))
        elif any(map(fact.holds.matches, row.builds)):
            notes += [commit] if row.all(RecipeCommit) else []
            notes += fact.holds.words(row.builds).split(", ") if isinstance(fact, CiPin) else []
            # a header inside the wheel belongs to the release, so that its value counts as read
            notes += ["inferred"] if fact.where.inferred and not fact.where.index else []
            value = short_revision(fact.value) if isinstance(fact, TagCommit) else fact.value
            text = "any" if value in ("", "*") else re.sub(r"^={2,3}(?=[^,]*$)", "", value)
            parts.append(CellPart(text=text, notes=(*notes,), url=fact.where.url))
    return _merge(parts or unread)


def _recipe(row: AuditRow) -> Sequence[CellPart]:
    """Return the recipe's constraints, without bare names of pinned packages and without build strings."""
    facts = [fact for fact in row.all(RecipePin) if not fact.trouble and not excludes(fact)]
    covered = {config for fact in facts if fact.value != "*" for config in fact.holds.configs}
    facts = [fact for fact in facts if fact.value != "*" or {*fact.holds.configs} - covered]
    values: dict[str, list[str]] = {}
    for fact in sorted(facts, key=lambda fact: fact.value == "*"):
        text = _short(row, fact.value).partition(" ")[0]
        text = "any" if fact.value == "*" else fact.value if text == "*" else text  # `*` is of one build
        values.setdefault(text, []).extend(fact.holds.configs)
    scopes: dict[str, list[str]] = {}
    for text, configs in values.items():
        scopes.setdefault(config_words(configs, row.builds), []).append(text)
    parts = []
    for scope, texts in scopes.items():
        joined = [", ".join(texts)] if row.name == "python" else texts
        parts += [CellPart(text=text, scope=scope if len(scopes) > 1 else "") for text in joined]
    for commit in row.all(RecipeCommit):
        whose = commit.recipe if commit.recipe != row.name else ""
        words = filter(None, (whose, config_words(commit.holds.configs, row.builds)))
        parts.append(CellPart(text=short_revision(commit.value) or "any", scope=", ".join(words)))
    return parts


def _conda_forge(row: AuditRow) -> Sequence[CellPart]:
    """Return the global pin and its migrations.

    Left out: pins for platforms where the recipe does not require the package, and paused migrations.
    """
    asked = row.all(RecipePin)
    here = {build.platform for build in row.builds if any(fact.holds.matches(build) for fact in asked)}
    parts: list[CellPart] = []
    for fact in row.all(GlobalPin):
        where = set(fact.holds.platforms)
        values = dict.fromkeys(value for value in fact.values if value != "None")
        if values and (not here or not where or where & here) and not getattr(fact, "paused", False):
            scope = Scope(cuda=fact.holds.cuda).words()
            kind = f"migration {fact.migration}" if isinstance(fact, Migration) else "pin"
            notes = [f"{kind} for {scope}" if scope else kind]
            notes += fact.holds.platforms if not where >= here else []
            notes += ["inferred"] if fact.where.inferred else []
            parts.append(CellPart(text=_short(row, ", ".join(values)), notes=(*notes,), url=fact.where.url))
    return _merge(parts)


def _newest(row: AuditRow) -> list[CellPart]:
    facts = [fact for fact in row.all(Newest) if not fact.trouble]
    best = newest(fact.value for fact in facts)
    parts = []
    for fact in sorted(facts, key=lambda fact: fact.value != best):
        day = f"newest in a copy of {fact.where.fetched[:10]}" if fact.where.inferred else "newest"
        platforms = () if fact.value == best else fact.holds.platforms
        parts.append(CellPart(text=fact.value, notes=(day, *platforms), url=fact.where.url))
    return _merge(parts)


def _archs(row: AuditRow) -> tuple[Sequence[CellPart], Sequence[CellPart]]:
    parts = []
    for fact in row.all(UpstreamArchs):
        source = ("wheel" if fact.where.index else "CI") if fact.archs else ""
        notes = (source, *fact.holds.platforms, "inferred" if fact.where.inferred else "")
        parts.append(CellPart(text=" ".join(fact.archs) or fact.value, notes=notes, url=fact.where.url))
    return parts, [
        CellPart(text=" ".join(fact.archs), scope=", ".join(fact.holds.platforms))
        for fact in row.all(RecipeArchs)
    ]


def _merge(parts: Iterable[CellPart]) -> list[CellPart]:
    merged: dict[str, CellPart] = {}
    for part in parts:
        other = merged.get(part.text, part)
        notes = tuple(dict.fromkeys((*other.notes, *part.notes)))
        merged[part.text] = CellPart(text=part.text, notes=notes, url=other.url or part.url)
    return list(merged.values())


def _short(row: AuditRow, text: str) -> str:
    """Abbreviate Pythons: ``3.12, 3.14t``."""
    return _PYTHON.sub(r"\1\2", text) if row.name == "python" else text
