"""Compare upstream's lists of CUDA architectures with the recipe's, in one row per CUDA version."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from pin_audit.facts import AnyFact, AuditTarget, RecipeArchs, UpstreamArchs, known, of_kind
from pin_audit.name_map import Dependency
from pin_audit.rows import AuditRow, Verdict, first_line
from pin_audit.statuses import Status


@dataclass(frozen=True, kw_only=True)
class ArchLists:
    """The lists for one CUDA version."""

    upstream: list[UpstreamArchs] = field(default_factory=list)
    recipe: list[RecipeArchs] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Architectures that only one side has on a platform."""

    text: str
    platform: str
    lacks: bool  #: whether the recipe lacks them


def arch_rows(facts: Sequence[AnyFact], target: AuditTarget, trouble: str) -> tuple[AuditRow, ...]:
    """Return one row per CUDA version, the oldest first; `trouble`: why upstream's lists were not read."""
    lists: dict[str, ArchLists] = {}
    upstream = of_kind(facts, UpstreamArchs)
    shipped = known(upstream)
    for fact in shipped:
        lists.setdefault(fact.holds.cuda[0], ArchLists()).upstream.append(fact)
    for ours in known(of_kind(facts, RecipeArchs)):
        lists.setdefault(ours.holds.cuda[0], ArchLists()).recipe.append(ours)
    if any(fact.where.inferred for fact in shipped):
        trouble = "upstream's are of another commit"
    elif shipped:
        trouble = ""
    else:
        troubles = [trouble, *(fact.trouble for fact in upstream), "none were found"]
        trouble = next(filter(None, troubles))
    unread = {fact.holds.cuda[0]: fact.trouble for fact in upstream if fact.trouble and fact.holds.cuda}
    rows = []
    for cuda in sorted(lists, key=_order):
        name = f"CUDA {cuda}"
        listed = lists[cuda]
        rows.append(
            AuditRow(
                name=name,
                facts=(*listed.upstream, *listed.recipe),
                builds=target.builds,
                entry=Dependency(name=name),
                verdict=_unknown(unread[cuda]) if cuda in unread else _judge(cuda, listed, target, trouble),
            )
        )
    return tuple(rows)


def _judge(cuda: str, lists: ArchLists, target: AuditTarget, trouble: str) -> Verdict:
    if lists.upstream and lists.recipe:
        return _compare(lists, target)
    here = {build.cuda for build in target.builds} - {""}
    if not lists.recipe and cuda not in here:
        return _not_built(cuda, here)
    if trouble or not lists.recipe:
        return _unknown(trouble or "the recipe")
    todo = "keep the configs as long as conda-forge pins this CUDA"
    return Verdict(Status.NEWER, "upstream ships no wheels for this CUDA", todo)


def _unknown(trouble: str) -> Verdict:
    return Verdict(Status.UNKNOWN, f"lists were not read: {trouble}")


def _not_built(cuda: str, here: Collection[str]) -> Verdict:
    """Judge a CUDA version for which there is no config: only one newer than all of them calls for a decision."""
    ordered = sorted(here, key=_order)
    sentence = f"upstream ships it; the configs have {', '.join(ordered) or 'none'}"
    if ordered and _order(cuda) > _order(ordered[-1]):
        return Verdict(Status.OLDER, sentence, "add a config for this CUDA, or leave it to upstream's wheels")
    return Verdict(Status.IN_STEP, sentence)


def _compare(lists: ArchLists, target: AuditTarget) -> Verdict:
    platforms_of: dict[str, set[str]] = {}
    lacks = False
    for difference in _differences(lists, target):
        platforms_of.setdefault(difference.text, set()).add(difference.platform)
        lacks = lacks or difference.lacks
    if not platforms_of:
        return Verdict(Status.IN_STEP, "the same architectures")
    sentences = [f"{text} [{', '.join(sorted(platforms))}]" for text, platforms in platforms_of.items()]
    status = Status.OLDER if lacks else Status.NEWER
    todo = f"use upstream's list, or keep the difference deliberately{first_line(lists.recipe)}"
    return Verdict(status, "; ".join(sentences), todo)


def _differences(lists: ArchLists, target: AuditTarget) -> Iterator[Difference]:
    for fact in lists.recipe:
        ours = _without_ptx(fact.archs)
        for platform in sorted({build.platform for build in target.builds if fact.holds.matches(build)}):
            theirs: list[str] = []
            for other in lists.upstream:
                if not other.holds.platforms or platform in other.holds.platforms:
                    theirs += _without_ptx(other.archs)
            missing = [arch for arch in dict.fromkeys(theirs) if arch not in ours]
            if missing:
                yield Difference(
                    text=f"only upstream has {', '.join(missing)}", platform=platform, lacks=True
                )
            extra = [arch for arch in ours if arch not in theirs]
            if extra and theirs:
                text = f"only the recipe has {', '.join(extra)}"
                yield Difference(text=text, platform=platform, lacks=False)


def _without_ptx(archs: Sequence[str]) -> list[str]:
    """Remove ``+PTX``, which serves newer GPUs and is no difference."""
    return [arch.removesuffix("+PTX") for arch in archs]


def _order(cuda: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", cuda))
