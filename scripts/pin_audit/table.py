"""From facts to the table: one row per dependency, one per CUDA version for the architectures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pin_audit.archs import arch_rows
from pin_audit.commits import assign_rows, verdict
from pin_audit.compatibility import judge
from pin_audit.constraints import GRAVITY, AuditRow, Status, cuda_of_wheel, excludes
from pin_audit.facts import (
    UPSTREAM,
    AnyFact,
    AuditTarget,
    CiPin,
    FeedstockPin,
    GlobalPin,
    Newest,
    RecipeCommit,
    RecipePin,
    Requirement,
    SourceOutcome,
    Submodule,
    Switch,
    TagCommit,
    sanitized,
)
from pin_audit.name_map import Dependency, Names
from pin_audit.run_sources import OWN, SOURCES
from pin_audit.suggestions import suggest
from pin_audit.versions import Spec

_OFF = frozenset({"0", "OFF", "NO", "FALSE", "N"})  # what PyTorch's setup.py takes for off


@dataclass(frozen=True, kw_only=True)
class Audit:
    """One package's table, and its inputs; ``archs`` are the rows of CUDA versions."""

    target: AuditTarget
    commit: str
    rows: tuple[AuditRow, ...]
    archs: tuple[AuditRow, ...]
    outcomes: tuple[SourceOutcome, ...]

    def with_status(self, wanted: Iterable[Status]) -> list[str]:
        """Return the names of the rows that have one of some statuses."""
        among = set(wanted)
        return [row.name for row in (*self.rows, *self.archs) if row.status in among]

    def not_read(self) -> list[str]:
        """Return the sources outside this repository that were asked, and of which nothing could be read."""
        return [outcome.source for outcome in self.outcomes if outcome.source not in OWN and outcome.unread]

    def counts(self) -> str:
        """Return how many rows have each status, in words: ``1 conflict, 20 in step``."""
        found = {status: len(self.with_status([status])) for status in GRAVITY}
        return (
            ", ".join(f"{count} {status.value}" for status, count in found.items() if count)
            or "nothing found"
        )

    def findings(self) -> dict[tuple[Status, str], list[str]]:
        """Return the sentences about rows that are not in step, the gravest first, each with the names of its rows."""
        found: dict[tuple[Status, str], list[str]] = {}
        for row in sorted((*self.rows, *self.archs), key=lambda row: GRAVITY.index(row.status)):
            if row.status not in (Status.IN_STEP, Status.UNPINNED):
                text = f"{row.sentence}. To do: {todo}" if (todo := suggest(row)) else row.sentence
                found.setdefault((row.status, text), []).append(row.name)
        return found

    def unread(self) -> dict[str, str]:
        """Return what each source could not read: as a whole, or by the names of single values."""
        found = {}
        for outcome in (outcome for outcome in self.outcomes if outcome.applies):
            single = sorted({fact.name for fact in outcome.facts if fact.trouble})
            texts = [outcome.trouble] if outcome.trouble else []
            if single and len(single) < len({fact.name for fact in outcome.facts}):
                texts.append(f"not found: {', '.join(single)}")
            if texts or single:
                found[outcome.source] = "; ".join(texts or ["nothing of it was found"])
            if single and outcome.source in ("ci_pins", "upstream_archs"):
                found[outcome.source] += " (what upstream writes elsewhere now needs a rule in ci_rules.py)"
        return found


def tabulate(target: AuditTarget, outcomes: Sequence[SourceOutcome], names: Names) -> Audit:
    """Make a package's table from the outcomes of all sources, in any order."""
    ordered = tuple(sorted(map(sanitized, outcomes), key=lambda outcome: outcome.source))
    facts = [fact for outcome in ordered for fact in outcome.facts]
    switches = [fact for fact in facts if isinstance(fact, Switch)]
    drafts = _drafts(facts, names, assign_rows(facts, target, names))
    _merge_followers(drafts, names)
    troubles = _troubles(ordered)
    wheel_cuda, torch = cuda_of_wheel(facts), _torch(facts)
    rows = []
    for name, draft in sorted(drafts.items(), key=lambda item: item[0].lower()):
        entry = names.entries.get(name) or _unlisted(name, draft, names)
        found = sorted(draft, key=lambda one: (one.kind, one.name, one.holds.words(target.builds), one.value))
        use, why = _use(entry, found, switches, compiles=any(build.name for build in target.builds))
        row = AuditRow(
            name=name,
            facts=tuple(found),
            builds=target.builds,
            entry=entry,
            use=use,
            why=why,
            decided_by=entry.follows if entry.follows in drafts else "",
            wheel_cuda=wheel_cuda,
            torch=torch,
            troubles=troubles,
        )
        rows.append(_with_verdict(row, target))
    commits = [fact.value for fact in facts if isinstance(fact, TagCommit)]
    commits += [
        fact.where.commit for fact in facts if isinstance(fact, Submodule) and not fact.where.inferred
    ]
    return Audit(
        target=target,
        commit=next(filter(None, commits), ""),
        rows=tuple(rows),
        archs=arch_rows(
            facts, target, troubles.get("upstream_archs", ""), _trouble_of(ordered, "recipe_archs")
        ),
        outcomes=ordered,
    )


def _with_verdict(row: AuditRow, target: AuditTarget) -> AuditRow:
    """Add status and sentence: the graver one, with what led to it, and with what there is to say of commits."""
    versions = judge(row) if row.all(*UPSTREAM, RecipePin) else None
    commits = verdict(row, target)
    found = [judged for judged in (versions, commits) if judged is not None]
    status, sentence = min(found, key=lambda judged: GRAVITY.index(judged[0]))
    if versions and commits and status is versions[0]:
        sentence = f"{versions[1]}; {commits[1]}"
    return replace(row, status=status, sentence=sentence)


def _drafts(
    facts: Sequence[AnyFact], names: Names, commits: Sequence[tuple[str, AnyFact]]
) -> dict[str, list[AnyFact]]:
    drafts: dict[str, list[AnyFact]] = {}
    for fact in facts:
        if isinstance(fact, (*UPSTREAM, RecipePin)) and not excludes(fact):
            drafts.setdefault(_row_of(fact, names), []).append(fact)
    for row, fact in commits:
        drafts.setdefault(row, []).append(fact)
    for fact in facts:  # packages that nobody requires have no row
        if isinstance(fact, (GlobalPin, FeedstockPin, Newest)) or excludes(fact):
            rows = {_row_of(fact, names), *names.by_key(fact.name, fact.holds.platforms)}
            for row in sorted(rows & drafts.keys()):
                drafts[row].append(fact)
    return drafts


def _row_of(fact: AnyFact, names: Names) -> str:
    if isinstance(fact, Submodule):
        return names.by_submodule(fact.name)
    if isinstance(fact, Requirement):
        return names.by_distribution(fact.name)
    return names.by_ci(fact.name) if isinstance(fact, CiPin) else names.by_conda(fact.name)


def _torch(facts: Iterable[AnyFact]) -> str:
    asked = (
        Spec(fact.value).exact for fact in facts if isinstance(fact, RecipePin) and fact.name == "pytorch"
    )
    return next(filter(None, asked), "")


def _unlisted(name: str, draft: Sequence[AnyFact], names: Names) -> Dependency:
    """Return an entry for what name_map.yaml does not have: a submodule's submodules are used as that one is."""
    paths = [one.name for one in draft if isinstance(one, Submodule)]
    if not paths:
        return Dependency(name=name, conda=(name,))
    parts = paths[0].split("/")
    above = (names.by_submodule("/".join(parts[:length])) for length in range(len(parts) - 1, 0, -1))
    parent = next((names.entries[one] for one in above if one in names.entries), Dependency(name=name))
    return Dependency(name=name, system=parent.system, needs=parent.needs, unused=parent.unused)


def _merge_followers(drafts: dict[str, list[AnyFact]], names: Names) -> None:
    """Merge a row into the one that decides its version, unless the recipe has a constraint of its own for it.

    What upstream says of it is left out: the CUDA toolkit's version says all.
    """
    for name in list(drafts):
        entry = names.entries.get(name)
        followed = drafts.get(entry.follows) if entry and entry.follows else None
        own = any(isinstance(one, RecipePin) and one.value != "*" for one in drafts[name])
        if followed is not None and not own:
            followed += [one for one in drafts.pop(name) if isinstance(one, (RecipePin, RecipeCommit))]


def _use(
    entry: Dependency, facts: Sequence[AnyFact], switches: Sequence[Switch], *, compiles: bool
) -> tuple[str, str]:
    """Return how upstream's copy is used in the configs that compile it, the strongest use first.

    Without a recipe nothing says whether a copy is compiled.
    """
    if not entry.submodules and not any(isinstance(fact, Submodule) for fact in facts):
        return "", ""
    if not compiles:
        return "listed", ""
    if entry.unused:
        return "unused", entry.unused
    compiled = {config for one in switches for config in one.holds.configs}
    found: dict[str, str] = {}
    for config in sorted(compiled) or [""]:
        use, why = _use_in(entry, {one.name: one for one in switches if config in one.holds.configs})
        found.setdefault(use, why)
    return next((use, found[use]) for use in ("system", "vendored", "unused") if use in found)


def _use_in(entry: Dependency, switches: Mapping[str, Switch]) -> tuple[str, str]:
    needed = switches.get(entry.needs)
    if needed is not None and needed.value.upper() in _OFF:
        return "unused", _switch_origin(needed)
    name, _, wanted = entry.system.partition("=")
    switch = switches.get(name)
    if switch is not None and (switch.value.upper() in _OFF) == (wanted == "0"):
        return "system", _switch_origin(switch)
    return "vendored", ""


def _switch_origin(switch: Switch) -> str:
    return f"{switch.name}={switch.value}, {switch.where.file}:{switch.where.line}"


def _trouble_of(outcomes: Iterable[SourceOutcome], source: str) -> str:
    return next((outcome.trouble for outcome in outcomes if outcome.source == source), "not asked")


def _troubles(outcomes: Iterable[SourceOutcome]) -> dict[str, str]:
    """Return, for each source that failed as a whole or was not read, the reason."""
    troubles = dict.fromkeys(SOURCES, "not asked")
    for outcome in outcomes:
        troubles.pop(outcome.source, None)
        if outcome.applies and outcome.trouble and all(fact.trouble for fact in outcome.facts):
            troubles[outcome.source] = outcome.trouble
    return troubles
