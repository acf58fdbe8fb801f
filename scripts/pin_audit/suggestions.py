"""What there is to do about a row, in a few words: which value to take, and where the recipe has its own."""

from __future__ import annotations

import re

from pin_audit.archs import NOT_SHIPPED
from pin_audit.compatibility import RENDERED
from pin_audit.constraints import AuditRow, Constraint, Status, best_for, constraints_of
from pin_audit.facts import RecipeArchs, RecipeCommit, RecipePin, Requirement, Submodule, UpstreamArchs
from pin_audit.versions import Spec, common, pin

#: Rows that need somebody's decision.
DECISIONS = (Status.CONFLICT, Status.OLDER, Status.NEWER, Status.MISSING)


def suggest(row: AuditRow) -> str:
    """Return what to do; nothing for a row that needs no decision."""
    if row.status not in DECISIONS:
        return ""
    if row.all(UpstreamArchs, RecipeArchs):
        return _archs(row)
    here = _place(row)
    if row.all(RecipeCommit) and "commit" in row.sentence:
        return f"take upstream's commit{here}, or say in the recipe why not"
    constraints = constraints_of(row)
    needed = [constraint for constraint in constraints if constraint.hard]
    known = _known(constraints)
    named = re.search(r"conda-forge pins ([^;\[]+)", row.sentence)
    pinned = ", ".join(pin(one).text for one in named[1].strip().split(", ")) if named else ""
    if RENDERED in row.sentence:
        return "render the feedstock again (conda-smithy rerender)"
    wheel = ", ".join(dict.fromkeys(constraint.spec.text for constraint in needed)) or _elsewhere(row)
    if row.status is Status.NEWER:
        held = f"ask for {wheel or f'{known}.*'}" if wheel or known else "hold it back"
        return f"keep it if build and tests pass, else {held}{here}"
    if pinned:
        return f"follow the pin, {pinned}{here}, or say in the recipe why not"
    if "nothing newer" in row.sentence:
        return f"wait for conda-forge to have it, or take {best_for(row)}{here}"
    if row.name == "python" and row.status is Status.CONFLICT:
        return f"leave out the Pythons that {wheel} excludes{here}"
    if wheel:
        verb = (
            "ask for"
            if row.all(RecipePin)
            else "add it to run, where CUDA is used:"
            if _of_cuda(row)
            else "add"
        )
        return f"{verb} {wheel}{here}"
    return f"raise it to {known or 'what upstream has'}{here}"


def _archs(row: AuditRow) -> str:
    if not row.all(RecipeArchs):
        return "make a config for it, or leave it to upstream's wheels"
    if NOT_SHIPPED in row.sentence:
        return "keep it as long as conda-forge pins this CUDA"
    place = next((fact.where for fact in row.all(RecipeArchs) if fact.where.line), None)
    where = f" ({place.file}:{place.line})" if place else ""
    return f"take upstream's list, or keep the difference on purpose{where}"


def _place(row: AuditRow) -> str:
    """Return where the recipe asks for it: the line that the sentence is about, if it can be told."""
    found = [fact for fact in row.all(RecipePin) if fact.where.file and fact.where.line]
    named = [one for one in found if one.value != "*" and one.value.partition(" ")[0] in row.sentence]
    where = (named or found)[:1]
    return f" ({where[0].where.file}:{where[0].where.line})" if where else ""


def _known(constraints: list[Constraint]) -> str:
    """Return the version that upstream is known to work with."""
    soft = [constraint.version for constraint in constraints if constraint.version and not constraint.hard]
    return next(iter(soft), "")


def _elsewhere(row: AuditRow) -> str:
    """Return what the wheel needs for a CUDA version that is not made here."""
    specs = [Spec(fact.value, pep440=True) for fact in row.all(Requirement) if fact.value not in ("", "*")]
    return specs[0].text if specs and common(specs) and not row.all(Submodule) else ""


def _of_cuda(row: AuditRow) -> bool:
    return any(fact.name.startswith(("nvidia-", "cuda-")) for fact in row.all(Requirement))
