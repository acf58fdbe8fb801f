"""Judge a row: whether a version satisfies all, whether the recipe requires it, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pin_audit.ci_rules import NAMED
from pin_audit.facts import (
    COMMIT,
    UPSTREAM,
    AuditTarget,
    CiPin,
    RecipeCommit,
    RecipePin,
    Submodule,
    TagCommit,
    config_words,
    short_revision,
)
from pin_audit.repositories import identify
from pin_audit.rows import (
    ANY,
    AuditRow,
    Constraint,
    Status,
    Verdict,
    best_for,
    constraints_of,
    is_floor,
    is_optional,
    pins,
    requirements_of,
)
from pin_audit.targets import own_repositories
from pin_audit.versions import Spec, common, lowest, pin, side, within

#: A verdict, the recipe's constraint that it concerns (or None), and the configs for which it holds.
_Problem = tuple[Verdict, Constraint | None, frozenset[str]]
_RERENDER = "unless recipe/conda_build_config.yaml sets it, rerender the feedstock: conda-smithy rerender"


def judge(row: AuditRow, target: AuditTarget) -> Verdict:
    """Return the gravest verdict on the commits that recipes pin, and on a row's versions."""
    verdicts = [_judge_commit(fact, row, target) for fact in row.all(RecipeCommit)]
    if not verdicts or row.all(*UPSTREAM, RecipePin):
        verdicts.append(_judge_versions(row))
    return min(verdicts, key=lambda verdict: verdict.gravity)


def _judge_versions(row: AuditRow) -> Verdict:
    asked, named = requirements_of(row), constraints_of(row)
    if not asked and (verdict := _without_recipe(row)):
        return verdict
    if row.use in ("vendored", "listed") and (verdict := _vendored(row)):
        return verdict
    problems = list(_problems(row, asked, named))
    if not problems:
        # upstream is unread, but recipe and conda-forge were compared above
        if not named and not row.decided_by and (reason := _why_unknown(row)):
            return Verdict(Status.UNKNOWN, reason)
        return _in_step(row, asked, named)
    worst, request, _ = min(problems, key=lambda problem: problem[0].gravity)
    scopes: dict[str, frozenset[str]] = {}
    for verdict, _, configs in problems:
        if verdict.status is worst.status:
            scopes[verdict.sentence] = scopes.get(verdict.sentence, frozenset()) | configs
    everywhere = {config for constraint in asked for config in constraint.configs}
    sentences = []
    for text, configs in scopes.items():
        words = "" if configs >= everywhere else config_words(configs, row.builds)
        sentences.append(f"{text} [{words}]" if words else text)
    facts = [request.fact] if request else row.all(RecipePin)
    place = next((f" ({fact.where.file}:{fact.where.line})" for fact in facts if fact.where.line), "")
    return Verdict(worst.status, "; ".join(sentences), worst.todo and f"{worst.todo}{place}")


def _problems(row: AuditRow, asked: Sequence[Constraint], named: Sequence[Constraint]) -> Iterator[_Problem]:
    hard = [constraint for constraint in named if constraint.hard]
    if hard and not asked:
        texts = ", ".join(dict.fromkeys(constraint.spec.text for constraint in hard))
        sentence = f"the wheel requires {texts}, the recipe does not"
        yield Verdict(Status.MISSING, sentence, f"add {texts}"), None, frozenset()
    for need in hard:
        pinned = [pin(value) for value in pins(row, need.configs)]
        if pinned and all(common([need.spec, spec]) is None for spec in pinned):
            texts = ", ".join(dict.fromkeys(spec.text for spec in pinned))
            sentence = f"the wheel requires {need.spec.text}, conda-forge pins {texts}"
            yield _conflict(sentence, _follow(texts)), None, frozenset()
        elif verdict := _beyond_channel(row, need, f"the wheel requires {need.spec.text}"):
            yield verdict, None, frozenset()
    at_run = [need for need in asked if isinstance(need.fact, RecipePin) and "run" in need.fact.sections]
    for request in at_run or asked:
        for need in hard:
            if need.configs & request.configs and (verdict := _against_wheel(row, request, need)):
                yield verdict, request, request.configs
    for request in asked:
        soft = [need for need in named if not need.hard and need.configs & request.configs]
        verdicts = [verdict for need in soft if (verdict := _against_known(row, request, need))]
        if soft and len(verdicts) == len(soft) and not (hard and request.spec.any):
            yield min(verdicts, key=lambda verdict: verdict.gravity), request, request.configs
        for config in sorted(request.configs):  # pins may depend on the CUDA version
            values = pins(row, {config}, of=request.fact.name)
            if verdict := _against_pins(row, request, values):
                yield verdict, request, frozenset([config])
        if not request.spec.any and (verdict := _beyond_channel(row, request, _recipe(request.text))):
            yield verdict, request, request.configs


def _against_wheel(row: AuditRow, request: Constraint, need: Constraint) -> Verdict | None:
    both, todo = f"the wheel requires {need.spec.text}, {_recipe(request.text)}", f"require {need.spec.text}"
    if common([need.spec, request.spec]) is None:
        return _conflict(both, todo)
    if need.version:
        return _unpinned(row, need, "the wheel requires") if request.spec.any else None
    if within(request.spec, need.spec):
        return None
    older = not request.spec.any and Spec(f"<{lowest(need.spec)}").admits(lowest(request.spec))
    return Verdict(Status.OLDER if older else Status.MISSING, both, todo)


def _against_known(row: AuditRow, request: Constraint, need: Constraint) -> Verdict | None:
    """Compare the recipe's constraint with a version that upstream vendors, or that its wheels or CI use."""
    shipped = isinstance(need.fact, CiPin) and need.fact.shipped
    who = "upstream vendors" if isinstance(need.fact, Submodule) else "upstream's CI uses"
    who = "upstream's wheels use" if shipped else who
    if request.spec.any:
        verdict = _unpinned(row, need, who)
        too_new = verdict is None or verdict.status is Status.NEWER
        return None if row.entry.tool and (too_new or not best_for(row)) else verdict
    both = f"{who} {need.text}, {_recipe(request.text)}"
    if need.version:
        position = side(request.spec, need.version)
    else:
        position = "mixed" if common([need.spec, request.spec]) is None else "at"
    if position == "older":
        return Verdict(Status.OLDER, both, f"raise the requirement to {need.version}")
    if position == "newer":
        return _newer(row, need, both)
    return None if position == "at" else _conflict(both, f"require {need.spec.text}")


def _unpinned(row: AuditRow, need: Constraint, who: str) -> Verdict | None:
    """Judge a bare name by the version that the channel would provide."""
    best = best_for(row)
    if row.decided_by or (best and not need.version and not need.hard and need.spec.admits(best)):
        return None
    todo = f"require {need.spec.text if need.hard else need.version or need.spec.text}"
    if not best or not need.version:
        # a version that upstream only tests is not a missing pin
        status = Status.MISSING if need.hard or not need.version else Status.UNKNOWN
        return Verdict(status, f"{who} {need.text}, {_recipe(ANY)}", todo)
    if Spec(f"{need.version}.*").admits(best) or need.spec.admits(best):
        return None
    sentence = f"{who} {need.text}; the recipe takes the newest, {best}"
    if not Spec(f"<{need.version}").admits(best):
        return _newer(row, need, sentence)
    if is_floor(row, best):
        seen = f"{_recipe(ANY)}; conda-forge had {best} when last read"
        return Verdict(Status.UNKNOWN, f"{who} {need.text}; {seen}")
    return Verdict(Status.OLDER, sentence, todo)


def _against_pins(row: AuditRow, request: Constraint, values: Sequence[str]) -> Verdict | None:
    """Compare with conda-forge's pins; during a migration, the old and the new pin both count."""
    fact = request.fact
    assert isinstance(fact, RecipePin)
    pinned = [pin(value) for value in values]
    if not pinned or not {*fact.sections} & {"build", "host"}:
        return None
    texts = ", ".join(dict.fromkeys(values))
    if request.spec.any:
        if fact.value != "*" or row.entry.tool or all(spec.any for spec in pinned):
            return None
        return Verdict(Status.MISSING, f"conda-forge pins {texts}, {_recipe(ANY)}", _follow(texts))
    if any(common([request.spec, spec]) for spec in pinned):
        return None
    ours = f"the rendered configs have {request.text}" if fact.rendered else _recipe(request.text)
    both, todo = f"{ours}, conda-forge pins {texts}", _RERENDER if fact.rendered else _follow(texts)
    if "host" in fact.sections and not fact.rendered:
        return _conflict(both, todo)
    floor = lowest(request.spec)  # empty if the constraint admits no version
    older = bool(floor) and any(side(spec, floor) == "newer" for spec in pinned)
    return Verdict(Status.OLDER if older else Status.NEWER, both, todo)


def _beyond_channel(row: AuditRow, need: Constraint, text: str) -> Verdict | None:
    """Return a conflict if the channel has nothing new enough."""
    best = best_for(row, need.configs)
    if best and not is_floor(row, best) and side(need.spec, best) == "newer":
        sentence = f"{text}, conda-forge has nothing newer than {best}"
        return Verdict(Status.CONFLICT, sentence, f"wait until conda-forge has it, or require {best}")
    return None


def _conflict(text: str, todo: str) -> Verdict:
    return Verdict(Status.CONFLICT, f"no version satisfies both: {text}", todo)


def _newer(row: AuditRow, need: Constraint, sentence: str) -> Verdict:
    wanted = need.spec.text if need.hard else f"{need.version}.*"
    instead = "build for the other Pythons only" if row.name == "python" else f"require {wanted}"
    todo = f"keep this version if build and tests pass, else {instead}"
    return Verdict(Status.NEWER, sentence, todo)


def _recipe(text: str) -> str:
    return f"the recipe {'accepts' if text == ANY else 'requires'} {text}"


def _follow(pins: str) -> str:
    return f"use the pin, {pins}, or give the reason in the recipe"


# ---- rows without a problem, or that cannot have one ------------------------------------------------


def _without_recipe(row: AuditRow) -> Verdict | None:
    upstream = row.all(*UPSTREAM)
    if row.use == "unused":
        return Verdict(Status.IN_STEP, f"not compiled here: {row.entry.unused}")
    if "recipe_pins" in row.troubles and row.use != "listed":
        return Verdict(Status.UNKNOWN, f"the recipe was not read: {row.troubles['recipe_pins']}")
    if upstream and all(map(is_optional, upstream)):
        return Verdict(Status.IN_STEP, "upstream requires it only for an extra")
    if upstream and not row.use and all(isinstance(fact, CiPin) for fact in upstream):
        return Verdict(Status.UNKNOWN, "only upstream's CI names it, the recipe does not")
    return None


def _vendored(row: AuditRow) -> Verdict | None:
    copies = row.all(Submodule)
    compiled = "upstream vendors it" if row.use == "listed" else "upstream's copy is compiled in"
    note = f"; {row.entry.vendored}" if row.entry.vendored else ""
    if value := next((fact.value for fact in copies if fact.value), ""):
        return Verdict(Status.IN_STEP, f"{compiled}: {value}{note}")
    if copies or "submodules" in row.troubles:
        reason = copies[0].trouble if copies else "submodules were not read"
        return Verdict(Status.UNKNOWN, f"{compiled}, version unknown: {reason}{note}")
    return None


def _in_step(row: AuditRow, asked: Sequence[Constraint], named: Sequence[Constraint]) -> Verdict:
    if row.decided_by:
        return Verdict(Status.IN_STEP, f"{row.decided_by} decides its version")
    ours = _recipe(", ".join(dict.fromkeys(constraint.text for constraint in asked)) or ANY)
    if named:
        names = ", ".join(dict.fromkeys(constraint.text for constraint in named))
        return Verdict(Status.IN_STEP, f"upstream has {names}, {ours}")
    elsewhere = any(fact.value not in ("", "*") for fact in row.all(*UPSTREAM))
    if elsewhere and not asked:
        return Verdict(Status.IN_STEP, "upstream requires it only for configs that are not built here")
    return Verdict(Status.UNPINNED, f"upstream names no version, {ours}")


def _why_unknown(row: AuditRow) -> str:
    """Return why upstream's version is unknown, or an empty string if it was read."""
    troubles = [fact.trouble for fact in row.all(*UPSTREAM) if fact.trouble]
    sections = {section for fact in row.all(RecipePin) for section in fact.sections}
    concerned = {
        "submodules": bool(row.entry.submodules),
        "wheel_metadata": "run" in sections,
        "ci_pins": bool({row.name, *row.entry.ci} & NAMED and {"host", "build"} & sections),
    }
    troubles += [
        f"upstream's {source} could not be read"
        for source, matters in concerned.items()
        if matters and source in row.troubles
    ]
    return next(iter(troubles), "")


# ---- commits ----------------------------------------------------------------------------------------


def _judge_commit(pinned: RecipeCommit, row: AuditRow, target: AuditTarget) -> Verdict:
    repository, own = identify(pinned.address), own_repositories(target)
    pins = "the recipe" if pinned.recipe == target.package else f"{pinned.recipe}'s recipe"
    pins += f" pins {short_revision(pinned.value) or 'no commit'}"
    submodules = [fact.commit for fact in row.all(Submodule) if identify(fact.address) == repository]
    tags = [fact.value for fact in row.all(TagCommit)]
    commits = list(filter(None, tags if repository in own else submodules))
    as_tag = repository in own and pinned.value == f"refs/tags/{target.tag}"
    if not commits:
        unread = repository in own or (row.entry.submodules and "submodules" in row.troubles)
        status = Status.UNKNOWN if unread else Status.UNPINNED
        reason = "upstream's commit was not read" if unread else "upstream does not vendor it"
        return Verdict(status, f"{pins}; {reason}")
    if as_tag or (pinned.value and any(commit.startswith(pinned.value.lower()) for commit in commits)):
        return Verdict(Status.IN_STEP, f"{pins}, as upstream does")
    sentence = f"upstream has {', '.join(map(short_revision, commits))}, {pins}"
    todo = "use upstream's commit, or give the reason in the recipe"
    if not COMMIT.fullmatch(pinned.value):
        return Verdict(Status.MISSING, sentence, todo)
    if pinned.version in ("", target.version):
        return Verdict(Status.CONFLICT, f"no commit satisfies both: {sentence}", todo)
    # the recipe is for another version of upstream: the older version has the older commit
    status = Status.OLDER if Spec(f"<{target.version}").admits(pinned.version) else Status.NEWER
    return Verdict(status, f"{sentence} for {pinned.version}", todo)
