"""Judge a row: whether a version satisfies all, whether the recipe requires it, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pin_audit.addresses import identify
from pin_audit.ci_rules import NAMED
from pin_audit.facts import (
    COMMIT,
    AuditTarget,
    CiPin,
    RecipeCommit,
    RecipePin,
    Requirement,
    Section,
    Submodule,
    TagCommit,
    UpstreamVersion,
    config_words,
    short_revision,
)
from pin_audit.rows import (
    ANY,
    AuditRow,
    Constraint,
    Use,
    Verdict,
    best_for,
    constraints_of,
    first_line,
    is_floor,
    pins,
    requirements_of,
)
from pin_audit.statuses import Status
from pin_audit.targets import own_repositories
from pin_audit.versions import Position, Spec, common, lowest, pin, side, within

_RERENDER = "unless recipe/conda_build_config.yaml sets it, rerender the feedstock: conda-smithy rerender"
#: Sections of a recipe whose requirements conda-forge's pins concern.
_PINNED_SECTIONS = {Section.BUILD, Section.HOST}


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A verdict, and the recipe's constraint that it concerns, with the configs for which it holds."""

    verdict: Verdict
    request: Constraint | None = None
    configs: frozenset[str] = frozenset()

    @property
    def gravity(self) -> int:
        """The rank of the verdict; 0 is the gravest."""
        return self.verdict.gravity


def judge(row: AuditRow, target: AuditTarget) -> Verdict:
    """Return the gravest verdict on the commits that recipes pin, and on a row's versions."""
    verdicts = [_judge_commit(fact, row, target) for fact in row.all(RecipeCommit)]
    if not verdicts or row.all(UpstreamVersion, RecipePin):
        verdicts.append(_judge_versions(row))
    return _gravest(verdicts)


def _gravest(verdicts: Iterable[Verdict]) -> Verdict:
    return min(verdicts, key=lambda verdict: verdict.gravity)


def _judge_versions(row: AuditRow) -> Verdict:
    asked = requirements_of(row)
    named = constraints_of(row)
    if not asked and (verdict := _without_recipe(row)):
        return verdict
    if row.use in (Use.VENDORED, Use.LISTED) and (verdict := _vendored(row)):
        return verdict
    problems = list(_problems(row, asked, named))
    if problems:
        return _summarize(problems, row, asked)
    # upstream is unread, but recipe and conda-forge were compared above
    if not named and not row.decided_by and (reason := _why_unknown(row)):
        return Verdict(Status.UNKNOWN, reason)
    return _in_step(row, asked, named)


def _summarize(problems: Sequence[Problem], row: AuditRow, asked: Iterable[Constraint]) -> Verdict:
    """Return the gravest verdict, with the sentences of all others of its status."""
    worst = min(problems, key=lambda problem: problem.gravity)
    configs_of: dict[str, frozenset[str]] = {}
    for problem in problems:
        verdict = problem.verdict
        if verdict.status is worst.verdict.status:
            known = configs_of.get(verdict.sentence, frozenset())
            configs_of[verdict.sentence] = known | problem.configs
    everywhere = frozenset[str]().union(*(request.configs for request in asked))
    sentences = []
    for sentence, configs in configs_of.items():
        words = config_words(configs, row.builds)
        if words and not configs >= everywhere:
            sentence += f" [{words}]"
        sentences.append(sentence)
    todo = worst.verdict.todo
    if todo:
        todo += first_line([worst.request.fact] if worst.request else row.all(RecipePin))
    return Verdict(worst.verdict.status, "; ".join(sentences), todo)


def _problems(row: AuditRow, asked: Sequence[Constraint], named: Sequence[Constraint]) -> Iterator[Problem]:
    hard = [need for need in named if need.hard]
    soft = [need for need in named if not need.hard]
    yield from _problems_with_wheel(row, asked, hard)
    for request in asked:
        if not (hard and request.spec.any):  # else the wheel decides
            yield from _problems_with_known(row, request, soft)
        yield from _problems_with_conda_forge(row, request)


def _problems_with_wheel(
    row: AuditRow, asked: Sequence[Constraint], hard: Sequence[Constraint]
) -> Iterator[Problem]:
    yield from _missing(asked, hard)
    for need in hard:
        if verdict := _wheel_against_conda_forge(row, need):
            yield Problem(verdict=verdict)
    # the wheel's METADATA speaks for the installed package
    at_run = [request for request in asked if request.is_in({Section.RUN})]
    for request in at_run or asked:
        for need in hard:
            if need.configs & request.configs and (verdict := _against_wheel(row, request, need)):
                yield Problem(verdict=verdict, request=request, configs=request.configs)


def _missing(asked: Sequence[Constraint], hard: Sequence[Constraint]) -> Iterator[Problem]:
    """Yield the wheel's requirements for configs whose recipe has none."""
    has_one = frozenset[str]().union(*(request.configs for request in asked))
    lacking = [need for need in hard if not asked or need.configs - has_one]
    if not lacking:
        return
    texts = _listed(need.spec.text for need in lacking)
    configs = frozenset[str]().union(*(need.configs for need in lacking)) - has_one
    sentence = f"the wheel requires {texts}, the recipe does not"
    yield Problem(verdict=Verdict(Status.MISSING, sentence, f"add {texts}"), configs=configs)


def _problems_with_known(row: AuditRow, request: Constraint, soft: Sequence[Constraint]) -> Iterator[Problem]:
    """Yield the gravest problem with the versions that are only known to work, unless the recipe admits one."""
    verdicts = []
    for need in soft:
        if need.configs & request.configs:
            verdict = _against_known(row, request, need)
            if verdict is None:
                return
            verdicts.append(verdict)
    if verdicts:
        yield Problem(verdict=_gravest(verdicts), request=request, configs=request.configs)


def _problems_with_conda_forge(row: AuditRow, request: Constraint) -> Iterator[Problem]:
    for config in sorted(request.configs):  # pins may depend on the CUDA version
        values = pins(row, {config}, of=request.fact.name)
        if verdict := _against_pins(row, request, values):
            yield Problem(verdict=verdict, request=request, configs=frozenset([config]))
    if not request.spec.any and (verdict := _beyond_channel(row, request, _recipe(request.text))):
        yield Problem(verdict=verdict, request=request, configs=request.configs)


def _wheel_against_conda_forge(row: AuditRow, need: Constraint) -> Verdict | None:
    requires = f"the wheel requires {need.spec.text}"
    pinned = [pin(value) for value in pins(row, need.configs)]
    if not pinned or any(common([need.spec, spec]) for spec in pinned):
        return _beyond_channel(row, need, requires)
    texts = _listed(spec.text for spec in pinned)
    return _conflict(f"{requires}, conda-forge pins {texts}", _follow(texts))


def _against_wheel(row: AuditRow, request: Constraint, need: Constraint) -> Verdict | None:
    both = f"the wheel requires {need.spec.text}, {_recipe(request.text)}"
    todo = f"require {need.spec.text}"
    if common([need.spec, request.spec]) is None:
        return _conflict(both, todo)
    if need.version and request.spec.any:
        return _unpinned(row, need, "the wheel requires")
    if need.version or within(request.spec, need.spec):
        return None
    if not request.spec.any and Spec(f"<{lowest(need.spec)}").admits(lowest(request.spec)):
        return Verdict(Status.OLDER, both, todo)
    return Verdict(Status.MISSING, both, todo)


def _against_known(row: AuditRow, request: Constraint, need: Constraint) -> Verdict | None:
    """Compare the recipe's constraint with a version that upstream vendors, or that its wheels or CI use."""
    assert isinstance(need.fact, UpstreamVersion)
    who = need.fact.claim
    if request.spec.any:
        verdict = _unpinned(row, need, who)
        if verdict is None or not row.entry.tool:
            return verdict
        too_new = verdict.status is Status.NEWER
        return None if too_new or not best_for(row) else verdict
    both = f"{who} {need.text}, {_recipe(request.text)}"
    match _position(request.spec, need):
        case Position.AT:
            return None
        case Position.OLDER:
            return Verdict(Status.OLDER, both, f"raise the requirement to {need.version}")
        case Position.NEWER:
            return _newer(row, need, both)
        case Position.MIXED:
            return _conflict(both, f"require {need.spec.text}")


def _position(spec: Spec, need: Constraint) -> Position:
    if need.version:
        return side(spec, need.version)
    if common([need.spec, spec]) is None:
        return Position.MIXED
    return Position.AT


def _unpinned(row: AuditRow, need: Constraint, who: str) -> Verdict | None:
    """Judge a bare name by the version that the channel would provide."""
    if row.decided_by:
        return None
    best = best_for(row)
    bare = f"{who} {need.text}, {_recipe(ANY)}"
    if not need.version:
        enough = best and not need.hard and need.spec.admits(best)
        return None if enough else Verdict(Status.MISSING, bare, _require(need))
    if best:
        return _against_newest(row, need, who, best)
    # a version that upstream only tests is not a missing pin
    return Verdict(Status.MISSING if need.hard else Status.UNKNOWN, bare, _require(need))


def _against_newest(row: AuditRow, need: Constraint, who: str, best: str) -> Verdict | None:
    """Compare the channel's newest version, which a bare name takes, with upstream's."""
    if Spec(f"{need.version}.*").admits(best) or need.spec.admits(best):
        return None
    sentence = f"{who} {need.text}; the recipe takes the newest, {best}"
    if not Spec(f"<{need.version}").admits(best):
        return _newer(row, need, sentence)
    if is_floor(row, best):
        seen = f"{_recipe(ANY)}; conda-forge had {best} when last read"
        return Verdict(Status.UNKNOWN, f"{who} {need.text}; {seen}")
    return Verdict(Status.OLDER, sentence, _require(need))


def _require(need: Constraint) -> str:
    if need.version and not need.hard:
        return f"require {need.version}"
    return f"require {need.spec.text}"


def _against_pins(row: AuditRow, request: Constraint, values: Sequence[str]) -> Verdict | None:
    """Compare with conda-forge's pins; during a migration, the old and the new pin both count."""
    fact = request.fact
    assert isinstance(fact, RecipePin)
    if not values or not request.is_in(_PINNED_SECTIONS):
        return None
    texts = _listed(values)
    pinned = [pin(value) for value in values]
    if request.spec.any:
        bare_is_enough = row.entry.tool or not fact.allows_any or all(spec.any for spec in pinned)
        missing = Verdict(Status.MISSING, f"conda-forge pins {texts}, {_recipe(ANY)}", _follow(texts))
        return None if bare_is_enough else missing
    if any(common([request.spec, spec]) for spec in pinned):
        return None
    if fact.rendered:
        both = f"the rendered configs have {request.text}, conda-forge pins {texts}"
        return Verdict(_age(request.spec, pinned), both, _RERENDER)
    both = f"{_recipe(request.text)}, conda-forge pins {texts}"
    if Section.HOST in fact.sections:
        return _conflict(both, _follow(texts))
    return Verdict(_age(request.spec, pinned), both, _follow(texts))


def _age(spec: Spec, pinned: Iterable[Spec]) -> Status:
    """Return whether a constraint without a version in common with pins is older than one of them, or newer."""
    floor = lowest(spec)  # empty if the constraint admits no version
    if floor and any(side(other, floor) is Position.NEWER for other in pinned):
        return Status.OLDER
    return Status.NEWER


def _beyond_channel(row: AuditRow, need: Constraint, text: str) -> Verdict | None:
    """Return a conflict if the channel has nothing new enough."""
    best = best_for(row, need.configs)
    if best and not is_floor(row, best) and side(need.spec, best) is Position.NEWER:
        sentence = f"{text}, conda-forge has nothing newer than {best}"
        return Verdict(Status.CONFLICT, sentence, f"wait until conda-forge has it, or require {best}")
    return None


def _conflict(text: str, todo: str) -> Verdict:
    return Verdict(Status.CONFLICT, f"no version satisfies both: {text}", todo)


def _newer(row: AuditRow, need: Constraint, sentence: str) -> Verdict:
    if row.is_python:
        instead = "build for the other Pythons only"
    elif need.hard:
        instead = f"require {need.spec.text}"
    else:
        instead = f"require {need.version}.*"
    return Verdict(Status.NEWER, sentence, f"keep this version if build and tests pass, else {instead}")


def _recipe(text: str) -> str:
    return f"the recipe {'accepts' if text == ANY else 'requires'} {text}"


def _follow(pins: str) -> str:
    return f"use the pin, {pins}, or give the reason in the recipe"


def _listed(texts: Iterable[str]) -> str:
    """Join texts, each once."""
    return ", ".join(dict.fromkeys(texts))


# ---- rows without a problem, or that cannot have one ------------------------------------------------


def _without_recipe(row: AuditRow) -> Verdict | None:
    upstream = row.all(UpstreamVersion)
    if row.use is Use.UNUSED:
        return Verdict(Status.IN_STEP, f"not compiled here: {row.entry.unused}")
    unread = row.troubles.get("recipe_pins")
    if unread and row.use is not Use.LISTED:
        return Verdict(Status.UNKNOWN, f"the recipe was not read: {unread}")
    if not upstream:
        return None
    if all(isinstance(fact, Requirement) and fact.is_optional for fact in upstream):
        return Verdict(Status.IN_STEP, "upstream requires it only for an extra")
    if row.use is None and all(isinstance(fact, CiPin) for fact in upstream):
        return Verdict(Status.UNKNOWN, "only upstream's CI names it, the recipe does not")
    return None


def _vendored(row: AuditRow) -> Verdict | None:
    copies = row.all(Submodule)
    compiled = "upstream vendors it" if row.use is Use.LISTED else "upstream's copy is compiled in"
    note = f"; {row.entry.vendored}" if row.entry.vendored else ""
    for copy in copies:
        if copy.value:
            return Verdict(Status.IN_STEP, f"{compiled}: {copy.value}{note}")
    if not copies and "submodules" not in row.troubles:
        return None
    reason = copies[0].trouble if copies else "submodules were not read"
    return Verdict(Status.UNKNOWN, f"{compiled}, version unknown: {reason}{note}")


def _in_step(row: AuditRow, asked: Sequence[Constraint], named: Iterable[Constraint]) -> Verdict:
    if row.decided_by:
        return Verdict(Status.IN_STEP, f"{row.decided_by} decides its version")
    required = _listed(request.text for request in asked)
    known = _listed(need.text for need in named)
    ours = _recipe(required or ANY)
    if known:
        return Verdict(Status.IN_STEP, f"upstream has {known}, {ours}")
    elsewhere = any(fact.value and not fact.allows_any for fact in row.all(UpstreamVersion))
    if elsewhere and not asked:
        return Verdict(Status.IN_STEP, "upstream requires it only for configs that are not built here")
    return Verdict(Status.UNPINNED, f"upstream names no version, {ours}")


def _why_unknown(row: AuditRow) -> str:
    """Return why upstream's version is unknown, or an empty string if it was read."""
    for fact in row.all(UpstreamVersion):
        if fact.trouble:
            return fact.trouble
    sections: set[Section] = set()
    for required in row.all(RecipePin):
        sections.update(required.sections)
    known_to_ci = not NAMED.isdisjoint([row.name, *row.entry.ci])
    concerned = {
        "submodules": bool(row.entry.submodules),
        "wheel_metadata": Section.RUN in sections,
        "ci_pins": known_to_ci and not sections.isdisjoint(_PINNED_SECTIONS),
    }
    for source, matters in concerned.items():
        if matters and source in row.troubles:
            return f"upstream's {source} could not be read"
    return ""


# ---- commits ----------------------------------------------------------------------------------------


def _judge_commit(pinned: RecipeCommit, row: AuditRow, target: AuditTarget) -> Verdict:
    whose = "the recipe" if pinned.recipe == target.package else f"{pinned.recipe}'s recipe"
    pins = f"{whose} pins {short_revision(pinned.value) or 'no commit'}"
    own = identify(pinned.address) in own_repositories(target)
    commits = _upstream_commits(pinned, row, own=own)
    if not commits:
        if own or (row.entry.submodules and "submodules" in row.troubles):
            return Verdict(Status.UNKNOWN, f"{pins}; upstream's commit was not read")
        return Verdict(Status.UNPINNED, f"{pins}; upstream does not vendor it")
    as_tag = own and pinned.value == f"refs/tags/{target.tag}"
    if as_tag or _is_one_of(pinned.value, commits):
        return Verdict(Status.IN_STEP, f"{pins}, as upstream does")
    sentence = f"upstream has {', '.join(map(short_revision, commits))}, {pins}"
    return _other_commit(pinned, sentence, target)


def _other_commit(pinned: RecipeCommit, sentence: str, target: AuditTarget) -> Verdict:
    todo = "use upstream's commit, or give the reason in the recipe"
    if not COMMIT.fullmatch(pinned.value):
        return Verdict(Status.MISSING, sentence, todo)
    if pinned.version in ("", target.version):
        return Verdict(Status.CONFLICT, f"no commit satisfies both: {sentence}", todo)
    # the recipe is for another version of upstream: the older version has the older commit
    older = Spec(f"<{target.version}").admits(pinned.version)
    return Verdict(Status.OLDER if older else Status.NEWER, f"{sentence} for {pinned.version}", todo)


def _upstream_commits(pinned: RecipeCommit, row: AuditRow, *, own: bool) -> list[str]:
    """Return upstream's commits of the same repository: of its tag if it is its `own`, else of its submodules."""
    if own:
        return [fact.value for fact in row.all(TagCommit) if fact.value]
    repository = identify(pinned.address)
    commits = []
    for fact in row.all(Submodule):
        if fact.commit and identify(fact.address) == repository:
            commits.append(fact.commit)
    return commits


def _is_one_of(revision: str, commits: Iterable[str]) -> bool:
    """Whether a revision is the beginning of one of the commits."""
    return bool(revision) and any(commit.startswith(revision.lower()) for commit in commits)
