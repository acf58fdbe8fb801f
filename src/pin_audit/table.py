"""Make the table from facts: one row per dependency, and one row of GPU architectures per CUDA version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pin_audit.addresses import identify
from pin_audit.archs import arch_rows
from pin_audit.facts import (
    AnyFact,
    AuditTarget,
    Place,
    RecipeCommit,
    RecipePin,
    SourceOutcome,
    Submodule,
    TagCommit,
    known,
    of_kind,
)
from pin_audit.name_map import Dependency, Names, plain
from pin_audit.rows import AuditRow, Use, cuda_of_wheel
from pin_audit.run_sources import SOURCES, is_stale
from pin_audit.statuses import Status
from pin_audit.targets import own_repositories
from pin_audit.verdicts import judge

_Drafts = dict[str, list[AnyFact]]  #: the facts of each row


@dataclass(frozen=True, kw_only=True)
class Audit:
    """One package's table and its inputs; ``archs`` are the rows of CUDA versions."""

    target: AuditTarget
    commit: str
    rows: tuple[AuditRow, ...]
    archs: tuple[AuditRow, ...]
    outcomes: tuple[SourceOutcome, ...]

    @property
    def all_rows(self) -> tuple[AuditRow, ...]:
        """The rows of both tables."""
        return (*self.rows, *self.archs)

    def with_status(self, wanted: Iterable[Status]) -> list[str]:
        """Return the names of the rows with one of the `wanted` statuses."""
        among = set(wanted)
        return [row.name for row in self.all_rows if row.verdict.status in among]

    def not_read(self) -> list[str]:
        """Return the sources outside this repository that gave no current facts."""
        return [outcome.source for outcome in self.outcomes if is_stale(outcome)]

    def findings(self) -> dict[tuple[Status, str], list[str]]:
        """Return the sentences about rows that are not in step, gravest first, each with its rows' names."""
        findings: dict[tuple[Status, str], list[str]] = {}
        for row in sorted(self.all_rows, key=lambda row: row.verdict.gravity):
            verdict = row.verdict
            if verdict.status.settled:
                continue
            text = verdict.sentence
            if verdict.todo:
                text += f". To do: {verdict.todo}"
            findings.setdefault((verdict.status, text), []).append(row.name)
        return findings

    def troubles(self) -> dict[str, str]:
        """Return by source why it failed, or the names of single values that it did not find."""
        troubles = {}
        for outcome in self.outcomes:
            if not outcome.applies:
                continue
            texts = []
            if outcome.trouble:
                texts.append(outcome.trouble)
            if outcome.missing:
                texts.append(f"not found: {', '.join(sorted(outcome.missing))}")
            if texts:
                troubles[outcome.source] = "; ".join(texts)
        return troubles


def tabulate(
    target: AuditTarget, outcomes: Sequence[SourceOutcome], names: Names, *, foreign: bool = True
) -> Audit:
    """Make a package's table from the outcomes of all sources, in any order.

    `foreign`: the recipe is another feedstock's, for which this repository's decisions do not hold.
    """
    ordered = tuple(sorted(outcomes, key=lambda outcome: outcome.source))
    facts: list[AnyFact] = []
    for outcome in ordered:
        facts += outcome.facts
    drafts = _assign(facts, target, names)
    troubles = _why_unread(ordered)
    wheel_cuda = cuda_of_wheel(facts)
    rows = []
    for name in sorted(drafts, key=str.lower):
        entry = names.entry(name)
        draft = sorted(
            drafts[name], key=lambda fact: (fact.kind, fact.name, fact.holds.words(target.builds), fact.value)
        )
        row = AuditRow(
            name=name,
            facts=tuple(draft),
            builds=target.builds,
            entry=entry,
            use=_find_use(entry, draft, target),
            decided_by=entry.follows if entry.follows in drafts else "",
            wheel_cuda=wheel_cuda,
            troubles=troubles,
        )
        verdict = judge(row, target)
        if entry.decided and not foreign and verdict.todo:
            verdict = replace(verdict, sentence=f"{verdict.sentence}. Decided: {entry.decided}", todo="")
        rows.append(replace(row, verdict=verdict))
    commits_of_tag = [fact.value for fact in of_kind(facts, TagCommit)]
    return Audit(
        target=target,
        commit=next(filter(None, commits_of_tag), ""),
        rows=tuple(rows),
        archs=arch_rows(facts, target, troubles.get("upstream_archs", "")),
        outcomes=ordered,
    )


def _why_unread(outcomes: Iterable[SourceOutcome]) -> dict[str, str]:
    """Return by source why it has no facts."""
    troubles = dict.fromkeys(SOURCES, "not asked")
    for outcome in outcomes:
        troubles.pop(outcome.source, None)
        if outcome.applies and outcome.trouble and not known(outcome.facts):
            troubles[outcome.source] = outcome.trouble
    return troubles


def _assign(facts: Sequence[AnyFact], target: AuditTarget, names: Names) -> _Drafts:
    """Return the facts of each row. A row that follows another one is merged into it, unless the recipe pins it."""
    spellings: dict[str, str] = {}  # rows by normalized names
    drafts: _Drafts = {}
    for fact in facts:
        if _place(fact) is Place.ITS_ROW:
            row = _row_name(fact, names)
            row = spellings.setdefault(plain(row), row)
            drafts.setdefault(row, []).append(fact)
    for row, commits in _assign_commits(facts, target, names).items():
        drafts.setdefault(row, []).extend(commits)
    for fact in facts:
        if _place(fact) is Place.KNOWN_ROWS:
            row = _row_name(fact, names)
            rows = {spellings.get(plain(row), row), *names.by_key(fact.name, fact.holds.platforms)}
            for row in rows & drafts.keys():
                drafts[row].append(fact)
    _merge_followers(drafts, names)
    return drafts


def _place(fact: AnyFact) -> Place:
    """Return where a fact is shown; an excluded package gets no row."""
    if isinstance(fact, RecipePin) and fact.excludes:
        return Place.KNOWN_ROWS
    return fact.place


def _row_name(fact: AnyFact, names: Names) -> str:
    if isinstance(fact, Submodule):
        return names.by_submodule(fact.name)
    return names.by_name(fact.name)


def _merge_followers(drafts: _Drafts, names: Names) -> None:
    """Move the recipe's facts of a row without a version to the row that decides its version."""
    for row in list(drafts):
        leader = drafts.get(names.entry(row).follows)
        pins = of_kind(drafts[row], RecipePin)
        if leader is not None and all(pin.allows_any for pin in pins):
            leader += pins
            leader += of_kind(drafts[row], RecipeCommit)
            del drafts[row]


def _assign_commits(
    facts: Sequence[AnyFact], target: AuditTarget, names: Names
) -> Mapping[str, list[AnyFact]]:
    """Return by row the commits of recipes, and of upstream's tag, in the order of the facts.

    A commit in another package's recipe counts if it is of upstream's repository or of a library that upstream vendors.
    """
    vendored: dict[str, set[str]] = {}
    for submodule in of_kind(facts, Submodule):
        row = names.by_submodule(submodule.name)
        vendored.setdefault(identify(submodule.address), set()).add(row)
    own = own_repositories(target)
    assigned: dict[str, list[AnyFact]] = {}
    for fact in of_kind(facts, RecipeCommit):
        repository = identify(fact.address)
        if repository in own:
            rows = {target.package}
        elif repository in vendored:
            rows = vendored[repository]
        elif fact.recipe == target.package:
            rows = {names.by_name(fact.name)}
        else:
            continue
        for row in sorted(rows):
            assigned.setdefault(row, []).append(fact)
    if target.package in assigned:
        assigned[target.package] += of_kind(facts, TagCommit)
    return assigned


def _find_use(entry: Dependency, facts: Sequence[AnyFact], target: AuditTarget) -> Use | None:
    """Return how upstream's copy is used: a package that the recipe requires replaces it, unless marked vendored."""
    if not entry.submodules and not of_kind(facts, Submodule):
        return None
    if not target.is_compiled:
        return Use.LISTED
    if entry.unused:
        return Use.UNUSED
    if of_kind(facts, RecipePin) and not entry.vendored:
        return Use.SYSTEM
    return Use.VENDORED
