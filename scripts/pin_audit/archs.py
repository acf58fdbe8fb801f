"""Compare upstream's lists of CUDA architectures with the recipe's, in one row per CUDA version."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pin_audit.facts import AnyFact, AuditTarget, RecipeArchs, UpstreamArchs
from pin_audit.name_map import Dependency
from pin_audit.rows import AuditRow, Status, Verdict

_MISSING, _EXTRA = "only upstream has", "only the recipe has"


def arch_rows(facts: Iterable[AnyFact], target: AuditTarget, trouble: str) -> tuple[AuditRow, ...]:
    """Return one row per CUDA version, the oldest first; `trouble`: why upstream's lists were not read."""
    lists: dict[str, list[UpstreamArchs | RecipeArchs]] = {}
    for fact in facts:
        if isinstance(fact, (UpstreamArchs, RecipeArchs)) and not fact.trouble:
            lists.setdefault(fact.holds.cuda[0], []).append(fact)
        elif isinstance(fact, UpstreamArchs):
            trouble = trouble or fact.trouble
    here = {build.cuda for build in target.builds} - {""}
    shipped = [fact for listed in lists.values() for fact in listed if isinstance(fact, UpstreamArchs)]
    trouble = "" if shipped else trouble or "none were found"
    if any(fact.where.inferred for fact in shipped):
        trouble = "upstream's are of another commit"
    rows = []
    for cuda, listed in sorted(lists.items(), key=lambda item: _order(item[0])):
        upstream = [fact for fact in listed if isinstance(fact, UpstreamArchs)]
        recipes = [fact for fact in listed if isinstance(fact, RecipeArchs)]
        if upstream and recipes:
            verdict = _judge(upstream, recipes, target)
        elif not recipes and cuda not in here:
            newer = bool(here) and all(_order(cuda) > _order(other) for other in here)
            todo = "add a config for this CUDA, or leave it to upstream's wheels" if newer else ""
            configs = ", ".join(sorted(here, key=_order))
            status = Status.OLDER if newer else Status.IN_STEP
            verdict = Verdict(status, f"upstream ships it; the configs have {configs or 'none'}", todo)
        elif trouble or not recipes:
            verdict = Verdict(Status.UNKNOWN, f"lists were not read: {trouble or 'the recipe'}")
        else:
            todo = "keep the configs as long as conda-forge pins this CUDA"
            verdict = Verdict(Status.NEWER, "upstream ships no wheels for this CUDA", todo)
        name = f"CUDA {cuda}"
        entry = Dependency(name=name)
        rows.append(
            AuditRow(name=name, facts=tuple(listed), builds=target.builds, entry=entry, verdict=verdict)
        )
    return tuple(rows)


def _judge(upstream: Sequence[UpstreamArchs], recipes: Sequence[RecipeArchs], target: AuditTarget) -> Verdict:
    texts: dict[str, set[str]] = {}
    for ours in recipes:
        # +PTX serves newer GPUs and is no difference
        mine = [arch.removesuffix("+PTX") for arch in ours.archs]
        for platform in sorted({build.platform for build in target.builds if ours.holds.matches(build)}):
            lists = [fact.archs for fact in upstream if platform in (fact.holds.platforms or (platform,))]
            theirs = dict.fromkeys(arch.removesuffix("+PTX") for archs in lists for arch in archs)
            missing = [arch for arch in theirs if arch not in mine]
            extra = [arch for arch in mine if theirs and arch not in theirs]
            for archs, difference in ((missing, _MISSING), (extra, _EXTRA)):
                if archs:
                    texts.setdefault(f"{difference} {', '.join(archs)}", set()).add(platform)
    if not texts:
        return Verdict(Status.IN_STEP, "the same architectures")
    sentences = [f"{text} [{', '.join(sorted(platforms))}]" for text, platforms in texts.items()]
    place = next((f" ({fact.where.file}:{fact.where.line})" for fact in recipes if fact.where.line), "")
    status = Status.OLDER if any(_MISSING in text for text in texts) else Status.NEWER
    todo = f"use upstream's list, or keep the difference deliberately{place}"
    return Verdict(status, "; ".join(sentences), todo)


def _order(cuda: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", cuda))
