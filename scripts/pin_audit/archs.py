"""The lists of CUDA architectures side by side: upstream's and each recipe's, in one row per CUDA version."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pin_audit.facts import AnyFact, AuditTarget, RecipeArchs, UpstreamArchs
from pin_audit.name_map import Dependency
from pin_audit.rows import AuditRow, Status, Verdict

_MISSING = "upstream's, not the recipe's"
_ARCH = re.compile(r"(\d{1,2})\.(\d)([af]?)")


def arch_rows(
    facts: Iterable[AnyFact], target: AuditTarget, upstream_trouble: str, recipe_trouble: str
) -> tuple[AuditRow, ...]:
    """Put the lists of one CUDA version into one row, the oldest CUDA first; upstream may say one thing of all.

    The target's own recipe is held against its upstream; PyTorch's table shows the extensions' lists as well. The
    troubles are why lists are unknown, or empty.
    """
    rows: dict[str, tuple[list[UpstreamArchs], list[RecipeArchs]]] = {}
    everywhere: list[UpstreamArchs] = []  # listed without a CUDA version
    for fact in facts:
        if isinstance(fact, RecipeArchs) and target.package in (fact.recipe, "pytorch"):
            rows.setdefault(fact.holds.cuda[0], ([], []))[1].append(fact)
        elif isinstance(fact, UpstreamArchs) and fact.holds.cuda and not fact.trouble:
            rows.setdefault(fact.holds.cuda[0], ([], []))[0].append(fact)
        elif isinstance(fact, UpstreamArchs):
            everywhere.append(fact)
    built = {build.cuda for build in target.builds if build.cuda}
    here = [_order(cuda) for cuda in built | {cuda for cuda, (_, recipes) in rows.items() if recipes}]
    ships = any(fact.archs for upstream, _ in rows.values() for fact in (*upstream, *everywhere))
    result = []
    for cuda, (listed, recipes) in sorted(rows.items(), key=lambda item: _order(item[0])):
        upstream = [*listed, *everywhere]
        if not recipes and cuda in built:
            reason = recipe_trouble or "no recipe here names one"
            verdict = Verdict(Status.UNKNOWN, f"the recipe's list was not read: {reason}")
        elif not recipes:
            verdict = _judge_missing(_order(cuda), here)
        elif ships and not upstream:
            todo = "keep it as long as conda-forge pins this CUDA"
            verdict = Verdict(Status.NEWER, "upstream ships nothing for it", todo)
        else:
            verdict = _judge(upstream, recipes, target, upstream_trouble)
        name = f"CUDA {cuda}"
        row = AuditRow(
            name=name, facts=(*upstream, *recipes), builds=target.builds, entry=Dependency(name=name),
            **verdict._asdict(),
        )  # fmt: skip
        result.append(row)
    return tuple(result)


def _judge_missing(cuda: tuple[int, ...], here: Sequence[tuple[int, ...]]) -> Verdict:
    todo = "make a config for it, or leave it to upstream's wheels"
    if here and cuda > max(here):
        return Verdict(Status.OLDER, "upstream ships it; newer than any CUDA here", todo)
    if (here and cuda < min(here)) or any(one[0] == cuda[0] and one > cuda for one in here):
        return Verdict(Status.IN_STEP, "upstream ships it; here are newer ones")
    return Verdict(Status.MISSING, "upstream ships it, no config here is for it", todo)


def _judge(
    upstream: Sequence[UpstreamArchs], recipes: Sequence[RecipeArchs], target: AuditTarget, trouble: str
) -> Verdict:
    known = [fact for fact in upstream if not fact.trouble]
    if not known:
        reason = next((fact.trouble for fact in upstream), "") or trouble
        return Verdict(
            Status.UNKNOWN, f"upstream's lists were not read: {reason or 'its CI has none for it'}"
        )
    if not any(fact.archs for fact in known):
        return Verdict(Status.IN_STEP, f"upstream's are {known[0].value}")
    texts: dict[str, set[str]] = {}
    for ours in (fact for fact in recipes if fact.recipe == target.package):
        mine = set(map(_machine, ours.archs))
        for platform in sorted({build.platform for build in target.builds if ours.holds.matches(build)}):
            lists = [fact.archs for fact in known if platform in (fact.holds.platforms or (platform,))]
            theirs = {_machine(arch): None for archs in lists for arch in archs}
            missing = [arch for arch in theirs if arch not in mine]
            extra = [arch for arch in ours.archs if theirs and _machine(arch) not in theirs]
            for archs, has in ((missing, _MISSING), (extra, "the recipe's, not upstream's")):
                if archs:
                    texts.setdefault(f"{', '.join(archs)} is {has}", set()).add(platform)
    if not texts:
        return Verdict(Status.IN_STEP, "the same architectures")
    sentences = [f"{text} [{', '.join(sorted(platforms))}]" for text, platforms in texts.items()]
    place = next((f" ({fact.where.file}:{fact.where.line})" for fact in recipes if fact.where.line), "")
    status = Status.OLDER if any(_MISSING in text for text in texts) else Status.NEWER
    todo = f"take upstream's list, or keep the difference on purpose{place}"
    return Verdict(status, "; ".join(sentences), todo)


def split(text: str) -> tuple[str, ...]:
    """Return a list's architectures in one spelling: ``9.0``, ``12.0+PTX``, ``10.0a``."""
    archs = []
    for word in re.split(r"[;,\s]+", text.strip()):
        if match := _ARCH.match(word):
            archs.append(f"{match[1]}.{match[2]}{match[3]}{'+PTX' if 'ptx' in word.lower() else ''}")
    return tuple(archs)


def _machine(arch: str) -> str:
    """Return an architecture without PTX, which is for newer GPUs and no difference."""
    return arch.removesuffix("+PTX")


def _order(cuda: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", cuda))
