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
    requirements = requirements_of(row)
    if not requirements and (judged := _without_recipe(row)):
        return judged
    constraints = constraints_of(row)
    if row.use in ("vendored", "listed") and (judged := _vendored(row, requirements)):
        return judged
    found = list(_problems(row, requirements, constraints))
    if not found:
        # the recipe and conda-forge have been compared all the same
        if not constraints and not row.decided_by and (reason := _why_unknown(row)):
            return Status.UNKNOWN, reason
        return _no_problem(row, requirements, constraints)
    worst = min((status for status, _, _ in found), key=GRAVITY.index)
    about: dict[str, list[RecipeRequirement]] = {}
    for status, text, requirement in found:
        if status is worst:
            about.setdefault(text, []).extend([requirement] if requirement else [])
    sentences = [text + _where(row, those, requirements) for text, those in about.items()]
    more = f"; and {len(sentences) - _MOST_SENTENCES} more" if len(sentences) > _MOST_SENTENCES else ""
    return worst, "; ".join(sentences[:_MOST_SENTENCES]) + more


def _problems(
    row: AuditRow, requirements: Sequence[RecipeRequirement], constraints: Sequence[Constraint]
) -> Iterator[_Problem]:
    hard = [constraint for constraint in constraints if constraint.hard]
    soft = [constraint for constraint in constraints if not constraint.hard]
    at_run = [requirement for requirement in requirements if "run" in requirement.fact.sections] or list(
        requirements
    )
    if hard and not requirements:
        texts = ", ".join(dict.fromkeys(constraint.spec.text for constraint in hard))
        yield Status.MISSING, f"upstream's wheel needs {texts}, and the recipe does not ask for it", None
    for constraint in hard:
        for requirement in at_run:
            if constraint.configs & requirement.configs and (
                verdict := _against_wheel(row, requirement, constraint)
            ):
                yield *verdict, requirement
        if verdict := _beyond_conda_forge(row, constraint):
            yield *verdict, None
    for requirement in requirements:
        about = [constraint for constraint in soft if constraint.configs & requirement.configs]
        judged = [
            verdict for constraint in about if (verdict := _against_known(row, requirement, constraint))
        ]
        if about and len(judged) == len(about) and not (hard and requirement.spec.any):
            yield *min(judged, key=lambda verdict: GRAVITY.index(verdict[0])), requirement
        for part in _by_pins(row, requirement):
            if verdict := _against_pin(row, part):
                yield *verdict, part
        if verdict := _against_channel(row, requirement):
            yield *verdict, requirement


def _where(
    row: AuditRow, those: Sequence[RecipeRequirement], requirements: Sequence[RecipeRequirement]
) -> str:
    """Return in brackets where something holds; nothing if that is everywhere the recipe asks for it."""
    covered = frozenset[str]().union(*(requirement.configs for requirement in those))
    if covered >= frozenset[str]().union(*(requirement.configs for requirement in requirements)):
        return ""
    scopes = dict.fromkeys(config_words(requirement.configs, row.builds) for requirement in those)
    return f" [{', '.join(filter(None, scopes))}]" if any(scopes) else ""


def _no_problem(
    row: AuditRow, requirements: Sequence[RecipeRequirement], constraints: Sequence[Constraint]
) -> Verdict:
    texts: dict[str, list[RecipeRequirement]] = {}
    for requirement in requirements:
        texts.setdefault(requirement.text, []).append(requirement)
    asked = (
        ", ".join(text + _where(row, those, requirements) for text, those in texts.items()) or "any version"
    )
    if row.use == "system":
        asked = f"{asked} of the environment ({row.why})"
    if row.decided_by:
        return Status.IN_STEP, f"{row.decided_by} decides its version"
    if not constraints and (news := _of_newer_cuda(row, requirements)):
        return news
    if not constraints:
        elsewhere = any(fact.value not in ("", "*") for fact in row.all(*UPSTREAM))
        if elsewhere and not requirements:
            return Status.IN_STEP, "upstream needs it for builds that are not made here"
        here = " for these builds" if elsewhere else ""
        return Status.UNPINNED, f"upstream names no version{here}, the recipe asks for {asked}"
    names = ", ".join(dict.fromkeys(constraint.text for constraint in constraints))
    return Status.IN_STEP, f"upstream has {names}, the recipe asks for {asked}"


def _of_newer_cuda(row: AuditRow, requirements: Sequence[RecipeRequirement]) -> Verdict | None:
    """Judge what the wheel needs beside a CUDA newer than any that is made here."""
    needed = [
        fact for fact in row.all(Requirement) if of_nvidia(fact) and not is_optional(fact) and fact.value
    ]
    made = [build.cuda for build in row.builds if build.cuda]
    if not needed or not made or not all(Spec(f"<{row.wheel_cuda}").admits(cuda) for cuda in made):
        return None
    top = max(made, key=lambda cuda: tuple(map(int, cuda.split("."))))
    newest = {build.name for build in row.builds if build.cuda == top}
    requirements = [requirement for requirement in requirements if requirement.configs & newest] or list(
        requirements
    )
    spec = Spec(needed[0].value, pep440=True)
    needs = f"upstream's wheel is for CUDA {row.wheel_cuda}, newer than any here, and needs {needed[0].value}"
    if not requirements:
        return (Status.MISSING, f"{needs}; the recipe does not ask for it") if not spec.any else None
    asked = ", ".join(dict.fromkeys(requirement.text for requirement in requirements))
    both = f"{needs}; the recipe asks for {asked}"
    if any(common([spec, requirement.spec]) is None for requirement in requirements):
        return Status.OLDER, both
    return (
        (Status.MISSING, both)
        if any(requirement.spec.any for requirement in requirements)
        else (Status.IN_STEP, both)
    )


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


def _vendored(row: AuditRow, requirements: Sequence[RecipeRequirement]) -> Verdict | None:
    copies = row.all(Submodule)
    note = f"; {row.entry.note}" if row.entry.note else ""
    if not note and requirements:
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


def _against_wheel(row: AuditRow, requirement: RecipeRequirement, constraint: Constraint) -> Verdict | None:
    needs, asked = constraint.spec.text, requirement.text
    if common([constraint.spec, requirement.spec]) is None:
        return _conflict(f"the wheel needs {needs}, the recipe asks for {asked}")
    if constraint.version:
        return (
            _against_unpinned(row, constraint, "the wheel needs")
            if requirement.spec.any and not row.decided_by
            else None
        )
    if within(requirement.spec, constraint.spec):
        return None
    if requirement.spec.any:
        return Status.MISSING, f"the wheel needs {needs}, the recipe asks for any version"
    if admits_older(requirement.spec, constraint.spec):
        return Status.OLDER, f"the recipe's {asked} admits versions older than the wheel's {needs}"
    return Status.MISSING, f"the recipe's {asked} admits versions that the wheel's {needs} excludes"


def _against_known(row: AuditRow, requirement: RecipeRequirement, constraint: Constraint) -> Verdict | None:
    """Compare with what upstream vendors or tests with."""
    shipped = isinstance(constraint.fact, CiPin) and constraint.fact.shipped
    what = "upstream's wheels have" if shipped else "upstream's CI has"
    what = "upstream vendors" if isinstance(constraint.fact, Submodule) else what
    shown = constraint.text
    if requirement.spec.any:
        verdict = None if row.decided_by else _against_unpinned(row, constraint, what)
        too_new = verdict is None or verdict[0] is Status.NEWER
        return None if row.entry.tool and (too_new or not best_for(row)) else verdict
    both = f"{what} {shown}, the recipe asks for {requirement.text}"
    if not constraint.version:
        return _conflict(both) if common([constraint.spec, requirement.spec]) is None else None
    match side(requirement.spec, constraint.version):
        case "at":
            return None
        case "older":
            return Status.OLDER, both
        case "newer":
            return Status.NEWER, both
        case _:
            return Status.CONFLICT, f"{what} {shown}, which the recipe's {requirement.text} leaves out"


def _against_unpinned(row: AuditRow, constraint: Constraint, what: str) -> Verdict | None:
    """Judge a dependency without a constraint by the version that the channel would provide."""
    best = best_for(row)
    if best and not constraint.version and not constraint.hard and constraint.spec.admits(best):
        return None
    if not best or not constraint.version:
        # what upstream only tests with is not a pin that could be missing
        status = Status.MISSING if constraint.hard or not constraint.version else Status.UNKNOWN
        return status, f"{what} {constraint.text}, the recipe asks for any version"
    if Spec(f"{constraint.version}.*").admits(best) or constraint.spec.admits(best):
        return None
    status = Status.OLDER if Spec(f"<{constraint.version}").admits(best) else Status.NEWER
    if status is Status.OLDER and is_floor(row, best):
        known = f"the recipe asks for any version, and conda-forge had {best} when it was read"
        return Status.UNKNOWN, f"{what} {constraint.text}; {known}"
    return status, f"{what} {constraint.text}; the recipe takes the newest, {best}"


def _beyond_conda_forge(row: AuditRow, constraint: Constraint) -> Verdict | None:
    """Compare what the wheel needs with what conda-forge pins, and with what it has at all."""
    pinned = [pin(value) for value in pins(row, constraint.configs)]
    if pinned and all(common([constraint.spec, spec]) is None for spec in pinned):
        texts = ", ".join(dict.fromkeys(spec.text for spec in pinned))
        return _conflict(f"the wheel needs {constraint.spec.text}, conda-forge pins {texts}")
    return _beyond_channel(row, constraint, f"the wheel needs {constraint.spec.text}")


def _by_pins(row: AuditRow, requirement: RecipeRequirement) -> Iterator[RecipeRequirement]:
    """Yield what the recipe asks for, once for the configs that conda-forge pins alike: CUDA versions may differ."""
    alike: dict[tuple[str, ...], set[str]] = {}
    for config in sorted(requirement.configs):
        alike.setdefault(tuple(pins(row, frozenset({config}), of=requirement.fact.name)), set()).add(config)
    for configs in alike.values():
        yield replace(requirement, configs=frozenset(configs))


def _against_pin(row: AuditRow, requirement: RecipeRequirement) -> Verdict | None:
    """Compare with conda-forge's pin; a migration in progress counts as well as what it migrates from."""
    if not set(requirement.fact.sections) & {"build", "host"}:
        return None
    found = pins(row, requirement.configs, of=requirement.fact.name)
    pinned = [pin(value) for value in found]
    texts = ", ".join(dict.fromkeys(found))
    if not pinned:
        return None
    if requirement.spec.any:
        if requirement.fact.value != "*" or row.entry.tool or all(spec.any for spec in pinned):
            return None
        return Status.MISSING, f"conda-forge pins {texts}, the recipe asks for any version"
    if any(common([requirement.spec, spec]) for spec in pinned):
        return None
    both = f"the recipe asks for {requirement.text}, conda-forge pins {texts}"
    if requirement.fact.rendered:
        both = f"{RENDERED} {requirement.text}, conda-forge pins {texts}"
    elif "host" in requirement.fact.sections:
        return _conflict(both)
    floor = lowest(requirement.spec)  # empty where no version at all is admitted
    older = bool(floor) and any(side(spec, floor) == "newer" for spec in pinned)
    return (Status.OLDER if older else Status.NEWER), both


def _against_channel(row: AuditRow, requirement: RecipeRequirement) -> Verdict | None:
    return (
        None
        if requirement.spec.any
        else _beyond_channel(row, requirement, f"the recipe asks for {requirement.text}")
    )


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
