"""The status of a row, with a sentence: does a version satisfy all, and does the recipe ask for it?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pin_audit.ci_rules import NAMED
from pin_audit.constraints import (
    GRAVITY,
    AuditRow,
    Constraint,
    RecipeRequirement,
    Status,
    Verdict,
    best_for,
    constraints_of,
    is_floor,
    is_optional,
    of_nvidia,
    pins,
    requirements_of,
)
from pin_audit.facts import UPSTREAM, CiPin, RecipePin, Requirement, Submodule, config_words
from pin_audit.versions import Spec, admits_older, common, lowest, pin, side, within

_MOST_SENTENCES = 2
#: A value of .ci_support, which a new rendering changes.
RENDERED = "the rendered configs have"
#: With the requirement of the recipe, or None if it has none.
_Problem = tuple[Status, str, RecipeRequirement | None]


def judge(row: AuditRow) -> Verdict:
    """Return a row's status and the sentence that explains it."""
    asks = requirements_of(row)
    if not asks and (judged := _without_recipe(row)):
        return judged
    claimed = constraints_of(row)
    if row.use in ("vendored", "listed") and (judged := _vendored(row, asks)):
        return judged
    found = list(_problems(row, asks, claimed))
    if not found:
        # the recipe and conda-forge have been compared all the same
        if not claimed and not row.decided_by and (reason := _why_unknown(row)):
            return Status.UNKNOWN, reason
        return _no_problem(row, asks, claimed)
    worst = min((status for status, _, _ in found), key=GRAVITY.index)
    about: dict[str, list[RecipeRequirement]] = {}
    for status, text, ask in found:
        if status is worst:
            about.setdefault(text, []).extend([ask] if ask else [])
    sentences = [text + _where(row, those, asks) for text, those in about.items()]
    more = f"; and {len(sentences) - _MOST_SENTENCES} more" if len(sentences) > _MOST_SENTENCES else ""
    return worst, "; ".join(sentences[:_MOST_SENTENCES]) + more


def _problems(
    row: AuditRow, asks: Sequence[RecipeRequirement], claimed: Sequence[Constraint]
) -> Iterator[_Problem]:
    hard = [claim for claim in claimed if claim.hard]
    soft = [claim for claim in claimed if not claim.hard]
    at_run = [ask for ask in asks if "run" in ask.fact.sections] or list(asks)
    if hard and not asks:
        texts = ", ".join(dict.fromkeys(claim.spec.text for claim in hard))
        yield Status.MISSING, f"upstream's wheel needs {texts}, and the recipe does not ask for it", None
    for claim in hard:
        for ask in at_run:
            if claim.configs & ask.configs and (verdict := _against_wheel(row, ask, claim)):
                yield *verdict, ask
        if verdict := _beyond_conda_forge(row, claim):
            yield *verdict, None
    for ask in asks:
        about = [claim for claim in soft if claim.configs & ask.configs]
        judged = [verdict for claim in about if (verdict := _against_known(row, ask, claim))]
        if about and len(judged) == len(about) and not (hard and ask.spec.any):
            yield *min(judged, key=lambda verdict: GRAVITY.index(verdict[0])), ask
        for part in _by_pins(row, ask):
            if verdict := _against_pin(row, part):
                yield *verdict, part
        if verdict := _against_channel(row, ask):
            yield *verdict, ask


def _where(row: AuditRow, those: Sequence[RecipeRequirement], asks: Sequence[RecipeRequirement]) -> str:
    """Return in brackets where something holds; nothing if that is everywhere the recipe asks for it."""
    covered = frozenset[str]().union(*(ask.configs for ask in those))
    if covered >= frozenset[str]().union(*(ask.configs for ask in asks)):
        return ""
    scopes = dict.fromkeys(config_words(ask.configs, row.builds) for ask in those)
    return f" [{', '.join(filter(None, scopes))}]" if any(scopes) else ""


def _no_problem(row: AuditRow, asks: Sequence[RecipeRequirement], claimed: Sequence[Constraint]) -> Verdict:
    texts: dict[str, list[RecipeRequirement]] = {}
    for ask in asks:
        texts.setdefault(ask.text, []).append(ask)
    asked = ", ".join(text + _where(row, those, asks) for text, those in texts.items()) or "any version"
    if row.use == "system":
        asked = f"{asked} of the environment ({row.why})"
    if row.decided_by:
        return Status.IN_STEP, f"{row.decided_by} decides its version"
    if not claimed and (news := _of_newer_cuda(row, asks)):
        return news
    if not claimed:
        elsewhere = any(fact.value not in ("", "*") for fact in row.all(*UPSTREAM))
        if elsewhere and not asks:
            return Status.IN_STEP, "upstream needs it for builds that are not made here"
        here = " for these builds" if elsewhere else ""
        return Status.UNPINNED, f"upstream names no version{here}, the recipe asks for {asked}"
    names = ", ".join(dict.fromkeys(claim.text for claim in claimed))
    return Status.IN_STEP, f"upstream has {names}, the recipe asks for {asked}"


def _of_newer_cuda(row: AuditRow, asks: Sequence[RecipeRequirement]) -> Verdict | None:
    """Judge what the wheel needs beside a CUDA newer than any that is made here."""
    needed = [
        fact for fact in row.all(Requirement) if of_nvidia(fact) and not is_optional(fact) and fact.value
    ]
    made = [build.cuda for build in row.builds if build.cuda]
    if not needed or not made or not all(Spec(f"<{row.wheel_cuda}").admits(cuda) for cuda in made):
        return None
    top = max(made, key=lambda cuda: tuple(map(int, cuda.split("."))))
    newest = {build.name for build in row.builds if build.cuda == top}
    asks = [ask for ask in asks if ask.configs & newest] or list(asks)
    spec = Spec(needed[0].value, pep440=True)
    needs = f"upstream's wheel is for CUDA {row.wheel_cuda}, newer than any here, and needs {needed[0].value}"
    if not asks:
        return (Status.MISSING, f"{needs}; the recipe does not ask for it") if not spec.any else None
    asked = ", ".join(dict.fromkeys(ask.text for ask in asks))
    both = f"{needs}; the recipe asks for {asked}"
    if any(common([spec, ask.spec]) is None for ask in asks):
        return Status.OLDER, both
    return (Status.MISSING, both) if any(ask.spec.any for ask in asks) else (Status.IN_STEP, both)


def _without_recipe(row: AuditRow) -> Verdict | None:
    upstream = row.all(*UPSTREAM)
    if row.use == "unused":
        return Status.IN_STEP, f"not compiled here: {row.why}"
    if "recipe_pins" in row.troubles and row.use != "listed":
        return Status.UNKNOWN, f"the recipe was not read: {row.troubles['recipe_pins']}"
    if upstream and all(is_optional(fact) for fact in upstream):
        return Status.IN_STEP, "upstream needs it for an extra only"
    if upstream and not row.use and all(isinstance(fact, CiPin) for fact in upstream):
        return Status.UNKNOWN, "only upstream's CI names it, the recipe does not ask for it"
    return None


def _vendored(row: AuditRow, asks: Sequence[RecipeRequirement]) -> Verdict | None:
    copies = row.all(Submodule)
    note = f"; {row.entry.note}" if row.entry.note else ""
    if not note and asks:
        note = "; the recipe asks for a package of this name as well"
    if value := next((fact.text for fact in copies if fact.value), ""):
        known = "upstream vendors" if row.use == "listed" else "upstream's copy is compiled in,"
        return Status.IN_STEP, f"{known} {value}{note}"
    if copies:
        known = "upstream vendors it" if row.use == "listed" else "upstream's copy is compiled in"
        return Status.UNKNOWN, f"{known}, and its version is not known: {copies[0].trouble}{note}"
    if "submodules" in row.troubles:
        return Status.UNKNOWN, f"upstream's copy is compiled in; submodules were not read{note}"
    return None


def _why_unknown(row: AuditRow) -> str:
    """Return why upstream's version is unknown, or an empty string if it was read."""
    broken = [fact for fact in row.all(*UPSTREAM) if fact.trouble]
    if broken:
        return broken[0].trouble
    sections = {section for fact in row.all(RecipePin) for section in fact.sections}
    if row.entry.submodules and "submodules" in row.troubles:
        return "upstream's submodules were not read"
    if "wheel_metadata" in row.troubles and "run" in sections:
        return "upstream's wheel was not read"
    if "ci_pins" in row.troubles and {"host", "build"} & sections and {row.name, *row.entry.ci} & NAMED:
        return "upstream's CI was not read"
    return ""


# ---- comparisons: a status and a sentence, or None if both sides agree ------------------------


def _against_wheel(row: AuditRow, ask: RecipeRequirement, claim: Constraint) -> Verdict | None:
    needs, asks = claim.spec.text, ask.text
    if common([claim.spec, ask.spec]) is None:
        return _conflict(f"the wheel needs {needs}, the recipe asks for {asks}")
    if claim.version:
        return (
            _against_unpinned(row, claim, "the wheel needs") if ask.spec.any and not row.decided_by else None
        )
    if within(ask.spec, claim.spec):
        return None
    if ask.spec.any:
        return Status.MISSING, f"the wheel needs {needs}, the recipe asks for any version"
    if admits_older(ask.spec, claim.spec):
        return Status.OLDER, f"the recipe's {asks} admits versions older than the wheel's {needs}"
    return Status.MISSING, f"the recipe's {asks} admits versions that the wheel's {needs} excludes"


def _against_known(row: AuditRow, ask: RecipeRequirement, claim: Constraint) -> Verdict | None:
    """Compare with what upstream vendors or tests with."""
    shipped = isinstance(claim.fact, CiPin) and claim.fact.shipped
    what = "upstream's wheels have" if shipped else "upstream's CI has"
    what = "upstream vendors" if isinstance(claim.fact, Submodule) else what
    shown = claim.text
    if ask.spec.any:
        verdict = None if row.decided_by else _against_unpinned(row, claim, what)
        too_new = verdict is None or verdict[0] is Status.NEWER
        return None if row.entry.tool and (too_new or not best_for(row)) else verdict
    both = f"{what} {shown}, the recipe asks for {ask.text}"
    if not claim.version:
        return _conflict(both) if common([claim.spec, ask.spec]) is None else None
    match side(ask.spec, claim.version):
        case "at":
            return None
        case "older":
            return Status.OLDER, both
        case "newer":
            return Status.NEWER, both
        case _:
            return Status.CONFLICT, f"{what} {shown}, which the recipe's {ask.text} leaves out"


def _against_unpinned(row: AuditRow, claim: Constraint, what: str) -> Verdict | None:
    """Judge a dependency without a constraint by the version that the channel would provide."""
    best = best_for(row)
    if best and not claim.version and not claim.hard and claim.spec.admits(best):
        return None
    if not best or not claim.version:
        # what upstream only tests with is not a pin that could be missing
        status = Status.MISSING if claim.hard or not claim.version else Status.UNKNOWN
        return status, f"{what} {claim.text}, the recipe asks for any version"
    if Spec(f"{claim.version}.*").admits(best) or claim.spec.admits(best):
        return None
    status = Status.OLDER if Spec(f"<{claim.version}").admits(best) else Status.NEWER
    if status is Status.OLDER and is_floor(row, best):
        known = f"the recipe asks for any version, and conda-forge had {best} when it was read"
        return Status.UNKNOWN, f"{what} {claim.text}; {known}"
    return status, f"{what} {claim.text}; the recipe takes the newest, {best}"


def _beyond_conda_forge(row: AuditRow, claim: Constraint) -> Verdict | None:
    """Compare what the wheel needs with what conda-forge pins, and with what it has at all."""
    pinned = [pin(value) for value in pins(row, claim.configs)]
    if pinned and all(common([claim.spec, spec]) is None for spec in pinned):
        texts = ", ".join(dict.fromkeys(spec.text for spec in pinned))
        return _conflict(f"the wheel needs {claim.spec.text}, conda-forge pins {texts}")
    return _beyond_channel(row, claim, f"the wheel needs {claim.spec.text}")


def _by_pins(row: AuditRow, ask: RecipeRequirement) -> Iterator[RecipeRequirement]:
    """Yield what the recipe asks for, once for the configs that conda-forge pins alike: CUDA versions may differ."""
    alike: dict[tuple[str, ...], set[str]] = {}
    for config in sorted(ask.configs):
        alike.setdefault(tuple(pins(row, frozenset({config}), of=ask.fact.name)), set()).add(config)
    for configs in alike.values():
        yield replace(ask, configs=frozenset(configs))


def _against_pin(row: AuditRow, ask: RecipeRequirement) -> Verdict | None:
    """Compare with conda-forge's pin; a migration in progress counts as well as what it migrates from."""
    if not set(ask.fact.sections) & {"build", "host"}:
        return None
    found = pins(row, ask.configs, of=ask.fact.name)
    pinned = [pin(value) for value in found]
    texts = ", ".join(dict.fromkeys(found))
    if not pinned:
        return None
    if ask.spec.any:
        if ask.fact.value != "*" or row.entry.tool or all(spec.any for spec in pinned):
            return None
        return Status.MISSING, f"conda-forge pins {texts}, the recipe asks for any version"
    if any(common([ask.spec, spec]) for spec in pinned):
        return None
    both = f"the recipe asks for {ask.text}, conda-forge pins {texts}"
    if ask.fact.rendered:
        both = f"{RENDERED} {ask.text}, conda-forge pins {texts}"
    elif "host" in ask.fact.sections:
        return _conflict(both)
    floor = lowest(ask.spec)  # empty where no version at all is admitted
    older = bool(floor) and any(side(spec, floor) == "newer" for spec in pinned)
    return (Status.OLDER if older else Status.NEWER), both


def _against_channel(row: AuditRow, ask: RecipeRequirement) -> Verdict | None:
    return None if ask.spec.any else _beyond_channel(row, ask, f"the recipe asks for {ask.text}")


def _beyond_channel(row: AuditRow, wanted: RecipeRequirement | Constraint, text: str) -> Verdict | None:
    """Return a conflict if the channel has nothing new enough."""
    best = best_for(row, wanted.configs)
    if (
        best
        and not is_floor(row, best)
        and not wanted.spec.admits(best)
        and side(wanted.spec, best) == "newer"
    ):
        return Status.CONFLICT, f"{text}, conda-forge has nothing newer than {best}"
    return None


def _conflict(text: str) -> Verdict:
    return Status.CONFLICT, f"no version satisfies both: {text}"
