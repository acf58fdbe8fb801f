"""The status of a row, with a sentence: is there a version that everybody accepts, and does the recipe ask for it?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from megabuild.audit.case import GRAVITY, Ask, Case, Claim, Judged, Status, asks_of, claims_of, is_optional
from megabuild.audit.compare import (
    against_channel,
    against_known,
    against_pin,
    against_wheel,
    beyond_conda_forge,
)
from megabuild.audit.facts import UPSTREAM, CiPin, RecipePin, Submodule
from megabuild.audit.words import of_configs

_MOST_SENTENCES = 2
#: With what the recipe asks for there, or None where that is nothing.
_Problem = tuple[Status, str, Ask | None]


def judge(case: Case) -> Judged:
    """Return a row's status and the sentence that explains it."""
    asks = asks_of(case)
    if not asks and (judged := _without_recipe(case)):
        return judged
    claimed = claims_of(case)
    if case.use == "vendored" and (judged := _vendored(case, asks)):
        return judged
    if not claimed and not case.decided_by and (reason := _silent(case)):
        return Status.UNKNOWN, reason
    found = list(_problems(case, asks, claimed))
    if not found:
        return _no_problem(case, asks, claimed)
    worst = min((status for status, _, _ in found), key=GRAVITY.index)
    about: dict[str, list[Ask]] = {}
    for status, text, ask in found:
        if status is worst:
            about.setdefault(text, []).extend([ask] if ask else [])
    sentences = [text + _where(case, those, asks) for text, those in about.items()]
    more = f"; and {len(sentences) - _MOST_SENTENCES} more" if len(sentences) > _MOST_SENTENCES else ""
    return worst, "; ".join(sentences[:_MOST_SENTENCES]) + more


def _problems(case: Case, asks: Sequence[Ask], claimed: Sequence[Claim]) -> Iterator[_Problem]:
    hard = [claim for claim in claimed if claim.hard]
    soft = [claim for claim in claimed if not claim.hard]
    at_run = [ask for ask in asks if "run" in ask.fact.sections] or list(asks)
    if hard and not asks:
        texts = ", ".join(dict.fromkeys(claim.spec.text for claim in hard))
        yield Status.MISSING, f"upstream's wheel needs {texts}, and the recipe does not ask for it", None
    for claim in hard:
        for ask in at_run:
            if claim.configs & ask.configs and (verdict := against_wheel(case, ask, claim)):
                yield *verdict, ask
        if verdict := beyond_conda_forge(case, claim):
            yield *verdict, None
    for ask in asks:
        about = [claim for claim in soft if claim.configs & ask.configs]
        judged = [verdict for claim in about if (verdict := against_known(case, ask, claim))]
        if about and len(judged) == len(about) and not (hard and ask.spec.any):
            yield *min(judged, key=lambda verdict: GRAVITY.index(verdict[0])), ask
        for verdict in (against_pin(case, ask), against_channel(case, ask)):
            if verdict:
                yield *verdict, ask


def _where(case: Case, those: Sequence[Ask], asks: Sequence[Ask]) -> str:
    """Return in brackets where something holds; nothing where that is wherever the recipe asks for it."""
    covered = frozenset[str]().union(*(ask.configs for ask in those))
    if covered >= frozenset[str]().union(*(ask.configs for ask in asks)):
        return ""
    scopes = dict.fromkeys(of_configs(ask.fact.holds.configs, case.builds) for ask in those)
    return f" [{', '.join(filter(None, scopes))}]" if any(scopes) else ""


def _no_problem(case: Case, asks: Sequence[Ask], claimed: Sequence[Claim]) -> Judged:
    texts: dict[str, list[Ask]] = {}
    for ask in asks:
        texts.setdefault(ask.text, []).append(ask)
    asked = ", ".join(text + _where(case, those, asks) for text, those in texts.items()) or "any version"
    if case.use == "system":
        asked = f"{asked} of the environment ({case.why})"
    if case.decided_by:
        return Status.IN_STEP, f"{case.decided_by} decides its version"
    if not claimed:
        elsewhere = any(one.value not in ("", "*") for one in case.facts if isinstance(one, UPSTREAM))
        if elsewhere and not asks:
            return Status.IN_STEP, "upstream needs it for builds that are not made here"
        here = " for these builds" if elsewhere else ""
        return Status.UNPINNED, f"upstream names no version{here}, the recipe asks for {asked}"
    names = ", ".join(dict.fromkeys(claim.fact.value for claim in claimed))
    return Status.IN_STEP, f"upstream has {names}, the recipe asks for {asked}"


def _without_recipe(case: Case) -> Judged | None:
    upstream = [one for one in case.facts if isinstance(one, UPSTREAM)]
    if case.use == "unused":
        return Status.IN_STEP, f"not compiled here: {case.why}"
    if "recipe_pins" in case.troubles:
        return Status.UNKNOWN, f"the recipe was not read: {case.troubles['recipe_pins']}"
    if upstream and all(is_optional(one) for one in upstream):
        return Status.IN_STEP, "upstream needs it for an extra only"
    if upstream and not case.use and all(isinstance(one, CiPin) for one in upstream):
        return Status.UNKNOWN, "only upstream's CI names it, the recipe does not ask for it"
    return None


def _vendored(case: Case, asks: Sequence[Ask]) -> Judged | None:
    copies = [one for one in case.facts if isinstance(one, Submodule)]
    note = f"; {case.entry.note}" if case.entry.note else ""
    if not note and asks:
        note = "; the recipe asks for a package of this name as well"
    if any(one.value for one in copies):
        value = next(one.value for one in copies if one.value)
        return Status.IN_STEP, f"upstream's copy is compiled in, {value}{note}"
    if copies:
        return Status.UNKNOWN, f"upstream's copy is compiled in, and not known: {copies[0].trouble}{note}"
    if "submodules" in case.troubles:
        return Status.UNKNOWN, f"upstream's copy is compiled in; submodules were not read{note}"
    return None


def _silent(case: Case) -> str:
    """Return why nobody can tell what upstream has, or an empty string where upstream was heard."""
    broken = [one for one in case.facts if one.trouble and isinstance(one, UPSTREAM)]
    if broken:
        return broken[0].trouble
    sections = {section for one in case.facts if isinstance(one, RecipePin) for section in one.sections}
    if case.entry.submodules and "submodules" in case.troubles:
        return "upstream's submodules were not read"
    if "wheel_metadata" in case.troubles and "run" in sections:
        return "upstream's wheel was not read"
    if "ci_pins" in case.troubles and {"host", "build"} & sections:
        return "upstream's CI was not read"
    return ""
