"""Make the table from facts: one row per dependency, and one row of GPU architectures per CUDA version."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pin_audit.archs import arch_rows
from pin_audit.facts import (
    UPSTREAM,
    AnyFact,
    AuditTarget,
    GlobalPin,
    Newest,
    RecipeCommit,
    RecipePin,
    SourceOutcome,
    Submodule,
    TagCommit,
)
from pin_audit.name_map import Dependency, Names, plain
from pin_audit.repositories import identify
from pin_audit.rows import AuditRow, Status, Verdict, cuda_of_wheel, excludes
from pin_audit.run_sources import OWN, SOURCES
from pin_audit.targets import own_repositories
from pin_audit.verdicts import judge


@dataclass(frozen=True, kw_only=True)
class Audit:
    """One package's table and its inputs; ``archs`` are the rows of CUDA versions."""

    target: AuditTarget
    commit: str
    rows: tuple[AuditRow, ...]
    archs: tuple[AuditRow, ...]
    outcomes: tuple[SourceOutcome, ...]

    def with_status(self, wanted: Iterable[Status]) -> list[str]:
        """Return the names of the rows with one of the `wanted` statuses."""
        among = set(wanted)
        return [row.name for row in (*self.rows, *self.archs) if row.verdict.status in among]

    def not_read(self) -> list[str]:
        """Return the sources outside this repository that gave no current facts."""
        return [outcome.source for outcome in self.outcomes if outcome.source not in OWN and outcome.unread]

    def findings(self) -> dict[tuple[Status, str], list[str]]:
        """Return the sentences about rows that are not in step, gravest first, each with its rows' names."""
        findings: dict[tuple[Status, str], list[str]] = {}
        for row in sorted((*self.rows, *self.archs), key=lambda row: row.verdict.gravity):
            status, sentence, todo = row.verdict
            if status not in (Status.IN_STEP, Status.UNPINNED):
                text = f"{sentence}. To do: {todo}" if todo else sentence
                findings.setdefault((status, text), []).append(row.name)
        return findings

    def troubles(self) -> dict[str, str]:
        """Return by source why it failed, or the names of single values that it did not find."""
        troubles = {}
        for outcome in (outcome for outcome in self.outcomes if outcome.applies):
            single = sorted({fact.name for fact in outcome.facts if fact.trouble})
            texts = [outcome.trouble, f"not found: {', '.join(single)}" if single else ""]
            if any(texts):
                troubles[outcome.source] = "; ".join(filter(None, texts))
        return troubles


def tabulate(
    target: AuditTarget, outcomes: Sequence[SourceOutcome], names: Names, *, foreign: bool = True
) -> Audit:
    """Make a package's table from the outcomes of all sources, in any order.

    `foreign`: the recipe is another feedstock's, for which this repository's decisions do not hold.
    """
    ordered = tuple(sorted(outcomes, key=lambda outcome: outcome.source))
    facts = [fact for outcome in ordered for fact in outcome.facts]
    drafts = _assign(facts, target, names)
    troubles = dict.fromkeys(SOURCES, "not asked")
    for outcome in ordered:
        troubles.pop(outcome.source, None)
        if outcome.applies and outcome.trouble and all(fact.trouble for fact in outcome.facts):
            troubles[outcome.source] = outcome.trouble
    wheel_cuda = cuda_of_wheel(facts)
    rows = []
    for name, draft in sorted(drafts.items(), key=lambda item: item[0].lower()):
        entry = names.entry(name)
        draft.sort(key=lambda fact: (fact.kind, fact.name, fact.holds.words(target.builds), fact.value))
        row = AuditRow(
            name=name,
            facts=tuple(draft),
            builds=target.builds,
            entry=entry,
            use=_find_use(entry, draft, compiles=any(build.name for build in target.builds)),
            decided_by=entry.follows if entry.follows in drafts else "",
            wheel_cuda=wheel_cuda,
            troubles=troubles,
        )
        verdict = judge(row, target)
        if entry.decided and not foreign and verdict.todo:
            verdict = Verdict(verdict.status, f"{verdict.sentence}. Decided: {entry.decided}")
        rows.append(replace(row, verdict=verdict))
    commits_of_tag = [fact.value for fact in facts if isinstance(fact, TagCommit)]
    return Audit(
        target=target,
        commit=next(filter(None, commits_of_tag), ""),
        rows=tuple(rows),
        archs=arch_rows(facts, target, troubles.get("upstream_archs", "")),
        outcomes=ordered,
    )


def _assign(facts: Sequence[AnyFact], target: AuditTarget, names: Names) -> dict[str, list[AnyFact]]:
    """Return the facts of each row. A row that follows another one is merged into it, unless the recipe pins it."""
    drafts: dict[str, list[AnyFact]] = {}
    spellings: dict[str, str] = {}  # the wheel says prometheus-client, the recipe prometheus_client
    for fact in sorted(facts, key=lambda fact: not isinstance(fact, RecipePin)):
        if isinstance(fact, (*UPSTREAM, RecipePin)) and not excludes(fact):
            row = names.by_submodule(fact.name) if isinstance(fact, Submodule) else names.by_name(fact.name)
            drafts.setdefault(spellings.setdefault(plain(row), row), []).append(fact)
    for row, fact in _assign_commits(facts, target, names):
        drafts.setdefault(row, []).append(fact)
    for fact in facts:  # packages that neither upstream nor the recipe names get no row
        if isinstance(fact, (GlobalPin, Newest)) or excludes(fact):
            row = names.by_name(fact.name)
            rows = {spellings.get(plain(row), row), *names.by_key(fact.name, fact.holds.platforms)}
            for row in rows & drafts.keys():
                drafts[row].append(fact)
    for row in list(drafts):
        leader = drafts.get(names.entries[row].follows) if row in names.entries else None
        pinned = any(isinstance(fact, RecipePin) and fact.value != "*" for fact in drafts[row])
        if leader is not None and not pinned:
            leader += [fact for fact in drafts.pop(row) if isinstance(fact, (RecipePin, RecipeCommit))]
    return drafts


def _assign_commits(facts: Sequence[AnyFact], target: AuditTarget, names: Names) -> list[tuple[str, AnyFact]]:
    """Return pairs of a row's name and a fact for it, in the order of the facts.

    A commit in another package's recipe counts if it is of upstream's repository or of a library that upstream vendors.
    """
    vendored = {
        (identify(fact.address), names.by_submodule(fact.name))
        for fact in facts
        if isinstance(fact, Submodule)
    }
    assigned: list[tuple[str, AnyFact]] = []
    for fact in (fact for fact in facts if isinstance(fact, RecipeCommit)):
        repository = identify(fact.address)
        if repository in own_repositories(target):
            assigned.append((target.package, fact))
        elif rows := sorted(row for address, row in vendored if address == repository):
            assigned += [(row, fact) for row in rows]
        elif fact.recipe == target.package:
            assigned.append((names.by_name(fact.name), fact))
    if any(row == target.package for row, _ in assigned):
        assigned += [(target.package, fact) for fact in facts if isinstance(fact, TagCommit)]
    return assigned


def _find_use(entry: Dependency, facts: Sequence[AnyFact], *, compiles: bool) -> str:
    """Return how upstream's copy is used: a package that the recipe requires replaces it, unless marked vendored."""
    if not entry.submodules and not any(isinstance(fact, Submodule) for fact in facts):
        return ""
    if not compiles:  # without a recipe it is unknown whether the copy is compiled
        return "listed"
    if entry.unused:
        return "unused"
    asked = any(isinstance(fact, RecipePin) for fact in facts)
    return "system" if asked and not entry.vendored else "vendored"
