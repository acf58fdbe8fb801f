"""From findings to the table: one row per dependency, one per CUDA version for the architectures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from megabuild.audit.archs import ArchRow, arch_rows
from megabuild.audit.case import GRAVITY, Case, Status
from megabuild.audit.claims import cuda_of_wheel
from megabuild.audit.clean import clean
from megabuild.audit.commits import joined, placed, verdict
from megabuild.audit.judge import judge
from megabuild.audit.model import Finding, Kind, Outcome, Target
from megabuild.audit.names import Entry, Names
from megabuild.audit.sources.recipe_pins import SWITCH
from megabuild.audit.specs import Spec
from megabuild.audit.switches import OFF

UPSTREAM = (Kind.SUBMODULE, Kind.REQUIREMENT, Kind.CI_PIN)
CONDA_FORGE = (Kind.GLOBAL_PIN, Kind.MIGRATION, Kind.NEWEST)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One dependency.

    Parameters
    ----------
    name:
        As conda-forge calls it, or a submodule's path where it has no name there.
    use:
        What becomes of upstream's copy: ``vendored`` (compiled in), ``system`` (the environment's is used), ``unused``,
        or empty where upstream has none.
    why:
        The switch or the reason behind ``use``.
    findings:
        All there are, in a stable order.
    status, sentence:
        The judgement.
    """

    name: str
    use: str
    why: str
    findings: tuple[Finding, ...]
    status: Status
    sentence: str

    def of(self, *kinds: Kind) -> tuple[Finding, ...]:
        """Return the findings of some kinds."""
        return tuple(finding for finding in self.findings if finding.kind in kinds)

    @property
    def vendored_only(self) -> bool:
        """Whether it is about upstream's copy alone: the recipe asks for nothing of this name."""
        return bool(self.use) and not self.of(Kind.RECIPE, Kind.RECIPE_COMMIT)


@dataclass(frozen=True, kw_only=True)
class Audit:
    """One package's table, and what it was made of."""

    target: Target
    commit: str
    rows: tuple[Row, ...]
    archs: tuple[ArchRow, ...]
    outcomes: tuple[Outcome, ...]


def unread(audit: Audit) -> dict[str, str]:
    """Return what each source could not read: as a whole, or by the names of single values."""
    found = {}
    for outcome in audit.outcomes:
        single = sorted({one.name for one in outcome.findings if one.trouble})
        texts = [outcome.trouble] if outcome.trouble else []
        if single and len(single) < len({one.name for one in outcome.findings}):
            texts.append(f"not found: {', '.join(single)}")
        if texts or single:
            found[outcome.source] = "; ".join(texts or ["nothing of it was found"])
    return found


def told(audit: Audit) -> dict[tuple[Status, str], list[str]]:
    """Return what there is to say of rows that are not in step, the gravest first: who each sentence is about."""
    found: dict[tuple[Status, str], list[str]] = {}
    named: list[tuple[str, Row | ArchRow]] = [(row.name, row) for row in audit.rows]
    named += [(f"CUDA {row.cuda}", row) for row in audit.archs]
    for name, row in sorted(named, key=lambda item: GRAVITY.index(item[1].status)):
        if row.status not in (Status.IN_STEP, Status.UNPINNED):
            found.setdefault((row.status, row.sentence), []).append(name)
    return found


@dataclass
class _Draft:
    findings: list[Finding] = field(default_factory=list)


def tabulate(target: Target, outcomes: Sequence[Outcome], names: Names) -> Audit:
    """Make a package's table.

    Parameters
    ----------
    target:
        What was audited.
    outcomes:
        What every source found, in any order.
    names:
        The mapping.
    """
    ordered = tuple(sorted(map(clean, outcomes), key=lambda outcome: outcome.source))
    findings = [finding for outcome in ordered for finding in outcome.findings]
    switches = [finding for finding in findings if SWITCH in finding.details]
    drafts = _drafts(findings, names, placed(findings, target, names))
    _fold(drafts, names)
    troubles = _troubles(ordered)
    wheel_cuda, torch = cuda_of_wheel(findings), _torch(findings)
    rows = []
    for name, draft in sorted(drafts.items(), key=lambda item: item[0].lower()):
        entry = names.entries.get(name, Entry(name=name, conda=(name,)))
        found = tuple(sorted(draft.findings, key=_key))
        use, why = _use(entry, found, switches)
        case = Case(
            entry=entry, use=use, why=why, findings=found, configs=target.configs,
            wheel_cuda=wheel_cuda, troubles=troubles, decided_by=_decider(entry, drafts), torch=torch,
        )  # fmt: skip
        judged = judge(case) if any(one.kind in (*UPSTREAM, Kind.RECIPE) for one in found) else None
        status, sentence = joined(judged, verdict(case, target))
        rows.append(Row(name=name, use=use, why=why, findings=found, status=status, sentence=sentence))
    return Audit(
        target=target,
        commit=next(
            (
                one.origin.commit
                for kind in (Kind.COMMIT, Kind.SUBMODULE)
                for one in findings
                if one.kind is kind and one.origin.commit
            ),
            "",
        ),
        rows=tuple(rows),
        archs=arch_rows(findings, target.package, troubles.get(Kind.UPSTREAM_ARCHS, "")),
        outcomes=ordered,
    )


def _drafts(
    findings: Sequence[Finding], names: Names, commits: Sequence[tuple[str, Finding]]
) -> dict[str, _Draft]:
    called = {
        Kind.SUBMODULE: names.by_submodule,
        Kind.REQUIREMENT: names.by_distribution,
        Kind.CI_PIN: names.by_ci,
        Kind.RECIPE: names.by_conda,
        Kind.GLOBAL_PIN: names.by_conda,
        Kind.MIGRATION: names.by_conda,
        Kind.NEWEST: names.by_conda,
    }
    drafts: dict[str, _Draft] = {}
    for finding in findings:
        if (
            finding.kind in (*UPSTREAM, Kind.RECIPE)
            and SWITCH not in finding.details
            and not _excluded(finding)
        ):
            drafts.setdefault(called[finding.kind](finding.name), _Draft()).findings.append(finding)
    for row, finding in commits:
        drafts.setdefault(row, _Draft()).findings.append(finding)
    for finding in findings:  # of what nobody asks for there is no row
        if finding.kind in CONDA_FORGE or _excluded(finding):
            rows = {called[finding.kind](finding.name), *names.by_key(finding.name, _platforms(finding))}
            for row in sorted(rows & drafts.keys()):
                drafts[row].findings.append(finding)
    return drafts


def _torch(findings: Iterable[Finding]) -> str:
    asked = (Spec(one.value).exact for one in findings if one.kind is Kind.RECIPE and one.name == "pytorch")
    return next((version for version in asked if version), "")


def _platforms(finding: Finding) -> tuple[str, ...]:
    return tuple(finding.details.get("platforms", "").replace(",", " ").split())


def _excluded(finding: Finding) -> bool:
    """Whether the recipe says that a package must not be there, in the usual way: older than anything."""
    return finding.kind is Kind.RECIPE and finding.value.startswith("<0.0a")


def _fold(drafts: dict[str, _Draft], names: Names) -> None:
    """Put a row about which upstream says nothing into the one that decides its version."""
    for name in list(drafts):
        entry = names.entries.get(name)
        followed = drafts.get(entry.follows) if entry and entry.follows else None
        if followed is not None and not any(one.kind in UPSTREAM for one in drafts[name].findings):
            asked = (Kind.RECIPE, Kind.RECIPE_COMMIT)
            followed.findings += [one for one in drafts.pop(name).findings if one.kind in asked]


def _decider(entry: Entry, drafts: Mapping[str, _Draft]) -> str:
    return entry.follows if entry.follows in drafts else ""


def _use(entry: Entry, findings: Sequence[Finding], switches: Sequence[Finding]) -> tuple[str, str]:
    """Say what becomes of upstream's copy in the configs that compile it, the strongest use first."""
    if not entry.submodules and not any(one.kind is Kind.SUBMODULE for one in findings):
        return "", ""
    if entry.unused:
        return "unused", entry.unused
    compiled = {config for one in switches for config in one.details.get("configs", "").split()}
    found: dict[str, str] = {}
    for config in sorted(compiled) or [""]:
        use, why = _use_in(entry, config, switches)
        found.setdefault(use, why)
    return next((use, found[use]) for use in ("system", "vendored", "unused") if use in found)


def _use_in(entry: Entry, config: str, switches: Sequence[Finding]) -> tuple[str, str]:
    values = {one.name: one for one in switches if config in one.details.get("configs", "").split()}
    needed = values.get(entry.needs)
    if needed is not None and needed.value.upper() in OFF:
        return "unused", _said(needed)
    name, _, wanted = entry.system.partition("=")
    switch = values.get(name)
    if switch is not None and (switch.value.upper() in OFF) == (wanted == "0"):
        return "system", _said(switch)
    return "vendored", ""


def _said(switch: Finding) -> str:
    return f"{switch.name}={switch.value}, {switch.origin.file}:{switch.origin.line}"


def _troubles(outcomes: Iterable[Outcome]) -> dict[Kind, str]:
    """Say of each kind of finding why there is none, where a source failed as a whole."""
    kinds = {
        "submodules": Kind.SUBMODULE,
        "upstream_commit": Kind.COMMIT,
        "wheel_metadata": Kind.REQUIREMENT,
        "ci_pins": Kind.CI_PIN,
        "recipe_pins": Kind.RECIPE,
        "recipe_commits": Kind.RECIPE_COMMIT,
        "pinning": Kind.GLOBAL_PIN,
        "channel": Kind.NEWEST,
        "upstream_archs": Kind.UPSTREAM_ARCHS,
        "recipe_archs": Kind.RECIPE_ARCHS,
    }
    heard = {kinds[outcome.source]: outcome for outcome in outcomes if outcome.source in kinds}
    troubles = {kind: "not asked" for kind in kinds.values() if kind not in heard}
    for kind, outcome in heard.items():
        if outcome.trouble and all(one.trouble for one in outcome.findings):
            troubles[kind] = outcome.trouble
    return troubles


def _key(finding: Finding) -> tuple[str, str, str, str]:
    return (finding.kind.value, finding.name, finding.scope, finding.value)
