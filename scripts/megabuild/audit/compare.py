"""Two sides of a row held against each other: the recipe, the wheel, what upstream has, conda-forge.

Each function returns a status and a sentence, or None where both agree.
"""

from __future__ import annotations

from megabuild.audit.case import Ask, Case, Claim, Judged, Status, best_for, newest_versions, pins
from megabuild.audit.facts import Submodule
from megabuild.audit.specs import Spec, admits_older, common, lowest, newest, pin, side, within


def against_wheel(case: Case, ask: Ask, claim: Claim) -> Judged | None:
    needs, asks = claim.spec.text, ask.text
    if common([claim.spec, ask.spec]) is None:
        return (
            Status.CONFLICT,
            f"no version satisfies both: the wheel needs {needs}, the recipe asks for {asks}",
        )
    if claim.version:
        return _bare(case, claim, "the wheel needs") if ask.spec.any and not case.decided_by else None
    if within(ask.spec, claim.spec):
        return None
    if ask.spec.any:
        return Status.MISSING, f"the wheel needs {needs}, the recipe asks for any version"
    if admits_older(ask.spec, claim.spec):
        return Status.OLDER, f"the recipe's {asks} admits versions older than the wheel's {needs}"
    return Status.MISSING, f"the recipe's {asks} admits versions that the wheel's {needs} excludes"


def against_known(case: Case, ask: Ask, claim: Claim) -> Judged | None:
    """Compare with what upstream vendors or tests with."""
    what = "upstream vendors" if isinstance(claim.fact, Submodule) else "upstream's CI has"
    shown = claim.fact.value
    if ask.spec.any:
        return None if case.decided_by else _bare(case, claim, what)
    if not claim.version:
        if common([claim.spec, ask.spec]) is None:
            return (
                Status.CONFLICT,
                f"no version satisfies both: {what} {shown}, the recipe asks for {ask.text}",
            )
        return None
    match side(ask.spec, claim.version):
        case "at":
            return None
        case "older":
            return Status.OLDER, f"{what} {shown}, the recipe asks for {ask.text}"
        case "newer":
            return Status.NEWER, f"{what} {shown}, the recipe asks for {ask.text}"
        case _:
            return Status.CONFLICT, f"{what} {shown}, which the recipe's {ask.text} leaves out"


def _bare(case: Case, claim: Claim, what: str) -> Judged | None:
    """Judge a dependency without a constraint by what the channel would give it."""
    best = newest(one.value for one in newest_versions(case))
    if best and not claim.version and not claim.hard and claim.spec.admits(best):
        return None
    if not best or not claim.version:
        # what upstream only tests with is no pin that could be missing
        status = Status.MISSING if claim.hard or not claim.version else Status.UNKNOWN
        return status, f"{what} {claim.fact.value}, the recipe asks for any version"
    if Spec(f"{claim.version}.*").admits(best) or claim.spec.admits(best):
        return None
    older = Spec(f"<{claim.version}").admits(best)
    return (
        Status.OLDER if older else Status.NEWER,
        f"{what} {claim.fact.value}; the recipe takes the newest, {best}",
    )


def beyond_conda_forge(case: Case, claim: Claim) -> Judged | None:
    """Compare what the wheel needs with what conda-forge pins, and with what it has at all."""
    pinned = [pin(value) for value in pins(case, claim.configs)]
    if pinned and all(common([claim.spec, one]) is None for one in pinned):
        texts = ", ".join(dict.fromkeys(one.text for one in pinned))
        text = f"no version satisfies both: the wheel needs {claim.spec.text}, conda-forge pins {texts}"
        return Status.CONFLICT, text
    best = best_for(case, claim.configs)
    if best and not claim.spec.admits(best) and side(claim.spec, best) == "newer":
        return (
            Status.CONFLICT,
            f"the wheel needs {claim.spec.text}, conda-forge has nothing newer than {best}",
        )
    return None


def against_pin(case: Case, ask: Ask) -> Judged | None:
    """Compare with conda-forge's pin; a migration in progress counts as well as what it migrates from."""
    if not set(ask.fact.sections) & {"build", "host"}:
        return None
    found = pins(case, ask.configs, of=ask.fact.name)
    pinned = [pin(value) for value in found]
    texts = ", ".join(dict.fromkeys(found))
    if not pinned:
        return None
    if ask.spec.any:
        if ask.fact.value != "*" or all(one.any for one in pinned):
            return None
        return Status.MISSING, f"conda-forge pins {texts}, the recipe asks for any version"
    if any(common([ask.spec, one]) for one in pinned):
        return None
    if "host" in ask.fact.sections:
        text = f"no version satisfies both: the recipe asks for {ask.text}, conda-forge pins {texts}"
        return Status.CONFLICT, text
    older = all(side(one, lowest(ask.spec)) == "newer" for one in pinned)
    return (
        Status.OLDER if older else Status.NEWER,
        f"the recipe asks for {ask.text}, conda-forge pins {texts}",
    )


def against_channel(case: Case, ask: Ask) -> Judged | None:
    best = best_for(case, ask.configs)
    if best and not ask.spec.any and not ask.spec.admits(best) and side(ask.spec, best) == "newer":
        return Status.CONFLICT, f"the recipe asks for {ask.text}, conda-forge has nothing newer than {best}"
    return None
