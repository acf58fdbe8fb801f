"""The lists of CUDA architectures side by side: upstream's and each recipe's, in one row per CUDA version."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pin_audit.constraints import AuditRow, Status, Verdict
from pin_audit.facts import AnyFact, AuditTarget, RecipeArchs, UpstreamArchs
from pin_audit.name_map import Dependency

NOT_SHIPPED = "upstream ships nothing for it"
_ARCH = re.compile(r"(\d{1,2})\.(\d)([af]?)")


def arch_rows(
    facts: Iterable[AnyFact], target: AuditTarget, upstream_trouble: str, recipe_trouble: str = ""
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
    found = []
    for cuda, (listed, recipes) in sorted(rows.items(), key=lambda item: _order(item[0])):
        upstream = [*listed, *everywhere]
        if not recipes and cuda in built:
            reason = recipe_trouble or "no recipe here names one"
            status, sentence = Status.UNKNOWN, f"the recipe's list was not read: {reason}"
        elif not recipes:
            status, sentence = _not_here(_order(cuda), here)
        elif ships and not upstream:
            status, sentence = Status.NEWER, NOT_SHIPPED
        else:
            status, sentence = _verdict(upstream, recipes, target, upstream_trouble)
        name = f"CUDA {cuda}"
        found.append(
            AuditRow(
                name=name,
                facts=(*upstream, *recipes),
                builds=target.builds,
                entry=Dependency(name=name),
                status=status,
                sentence=sentence,
            )
        )
    return tuple(found)


def _not_here(cuda: tuple[int, ...], here: Sequence[tuple[int, ...]]) -> Verdict:
    if here and cuda < min(here):
        return Status.IN_STEP, "upstream ships it; older than any CUDA here"
    if here and cuda > max(here):
        return Status.OLDER, "upstream ships it; newer than any CUDA here"
    if any(one[0] == cuda[0] and one > cuda for one in here):
        return Status.IN_STEP, "upstream ships it; here a newer CUDA of the same major version"
    return Status.MISSING, "upstream ships it, no config here is for it"


def _verdict(
    upstream: Sequence[UpstreamArchs], recipes: Sequence[RecipeArchs], target: AuditTarget, trouble: str
) -> Verdict:
    own = [one for one in recipes if one.recipe == target.package]
    others = _others(own, [one for one in recipes if one not in own])
    known = [fact for fact in upstream if not fact.trouble]
    if not known:
        reason = next((fact.trouble for fact in upstream if fact.trouble), "")
        reason = reason or (f"upstream's lists were not read: {trouble}" if trouble else "")
        return Status.UNKNOWN, "; ".join([reason or "upstream's CI builds nothing for it", *others])
    if not any(one.archs for one in known):
        return Status.IN_STEP, f"upstream's are {known[0].value}"
    lacking: dict[str, list[str]] = {}
    more: dict[str, list[str]] = {}
    for ours in own:
        here = {build.platform for build in target.builds if ours.holds.matches(build)}
        for platforms in dict.fromkeys(one.holds.platforms for one in known):
            if platforms and not set(platforms) & here:
                continue
            # whose list it is, where the recipe has one for several platforms
            place = ", ".join(platforms if len(here) > 1 and platforms else ours.holds.platforms)
            lists = [one.archs for one in known if one.holds.platforms == platforms]
            theirs = dict.fromkeys(arch for archs in lists for arch in archs)
            # PTX besides is for newer GPUs: it lacks where all of upstream's lists have it, and is never too much
            missing = [
                arch
                for arch in theirs
                if not {arch, f"{arch}+PTX"} & {*ours.archs}
                if not ({_machine(arch)} & {*ours.archs} and any(_machine(arch) in archs for archs in lists))
            ]
            if missing:
                lacking.setdefault(", ".join(missing), []).append(place)
            known_here = {_machine(arch) for arch in theirs}
            if extra := [arch for arch in ours.archs if _machine(arch) not in known_here]:
                more.setdefault(", ".join(extra), []).append(place)
    parts = [f"{archs} is upstream's, not the recipe's{_places(where)}" for archs, where in lacking.items()]
    parts += [f"{archs} is the recipe's, not upstream's{_places(where)}" for archs, where in more.items()]
    status = Status.OLDER if lacking else Status.NEWER if more else Status.IN_STEP
    return status, "; ".join([*(parts or ["the same architectures"]), *others])


def _machine(arch: str) -> str:
    """Return an architecture without ``+PTX``."""
    return arch.removesuffix("+PTX")


def _places(where: Sequence[str]) -> str:
    named = sorted({place for place in where if place})
    return f" [{', '.join(named)}]" if named else ""


def _others(own: Sequence[RecipeArchs], others: Sequence[RecipeArchs]) -> list[str]:
    """Return where other recipes here differ from the package's own."""
    found: dict[str, list[str]] = {}
    for other in others:
        alike = [one for one in own if one.holds.platforms == other.holds.platforms] or own
        left_out = [arch for arch in alike[0].archs if arch not in other.archs] if alike else []
        if left_out:
            found.setdefault(", ".join(left_out), []).append(other.recipe)
    return [f"{', '.join(dict.fromkeys(names))} leaves out {archs}" for archs, names in found.items()]


def split(text: str) -> tuple[str, ...]:
    """Return a list's architectures in one spelling: ``9.0``, ``12.0+PTX``, ``10.0a``."""
    found = []
    for word in re.split(r"[;,\s]+", text.strip()):
        match = _ARCH.match(word)
        if match:
            tail = "+PTX" if "ptx" in word.lower() else ""
            found.append(f"{match[1]}.{match[2]}{match[3]}{tail}")
    return tuple(found)


def _order(cuda: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", cuda))
