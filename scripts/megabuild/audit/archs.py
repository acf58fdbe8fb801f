"""The lists of CUDA architectures side by side: upstream's and each recipe's, in one row per CUDA version."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from megabuild.audit.case import Status
from megabuild.audit.model import Finding, Kind

_CUDA = re.compile(r"(\d{2})\.(\d+)|cu(?:da)?[ -]?(\d{2})(\d)\b", re.IGNORECASE)
_MANY = 3
_ARCH = re.compile(r"(\d{1,2})\.(\d)([af]?)")


@dataclass(frozen=True, kw_only=True)
class ArchRow:
    """One CUDA version.

    Parameters
    ----------
    cuda:
        ``13.0``.
    upstream, recipes:
        The lists as they were found.
    status, sentence:
        The judgement.
    """

    cuda: str
    upstream: tuple[Finding, ...]
    recipes: tuple[Finding, ...]
    status: Status
    sentence: str


def arch_rows(findings: Iterable[Finding], package: str, upstream_trouble: str) -> tuple[ArchRow, ...]:
    """Put the lists of one CUDA version into one row, the oldest CUDA first; upstream may say one thing of all.

    Parameters
    ----------
    package:
        Whose upstream it is. Its own recipe is held against that; PyTorch's table shows the extensions' lists as well.
    upstream_trouble:
        Why upstream's lists are not known; empty where they are.
    """
    rows: dict[str, tuple[list[Finding], list[Finding]]] = {}
    everywhere: list[Finding] = []  # said without a CUDA version
    for finding in findings:
        ours = finding.kind is Kind.RECIPE_ARCHS
        if finding.kind is not Kind.UPSTREAM_ARCHS and not ours:
            continue
        if ours and package not in (finding.details.get("recipe"), "pytorch"):
            continue
        cuda = "" if finding.trouble else _cuda(finding)
        if cuda:
            rows.setdefault(cuda, ([], []))[ours].append(finding)
        else:
            everywhere.append(finding)
    for upstream, _ in rows.values():
        upstream += everywhere
    here = [_order(cuda) for cuda, (_, recipes) in rows.items() if recipes]
    ships = any(one.value and not one.trouble for upstream, _ in rows.values() for one in upstream)
    found = []
    for cuda, (upstream, recipes) in sorted(rows.items(), key=lambda item: _order(item[0])):
        if not recipes:
            status, sentence = _not_here(_order(cuda), here)
        elif ships and not upstream:
            status, sentence = Status.NEWER, "upstream ships nothing for it"
        else:
            status, sentence = _judged(upstream, recipes, package, upstream_trouble)
        found.append(
            ArchRow(
                cuda=cuda,
                upstream=tuple(upstream),
                recipes=tuple(recipes),
                status=status,
                sentence=sentence,
            )
        )
    return tuple(found)


def _not_here(cuda: tuple[int, ...], here: Sequence[tuple[int, ...]]) -> tuple[Status, str]:
    if here and cuda < min(here):
        return Status.IN_STEP, "upstream ships it; older than any CUDA here"
    if here and cuda > max(here):
        return Status.OLDER, "upstream ships it; newer than any CUDA here"
    return Status.MISSING, "upstream ships it, no config here is for it"


def _judged(
    upstream: Sequence[Finding], recipes: Sequence[Finding], package: str, trouble: str
) -> tuple[Status, str]:
    own = [one for one in recipes if one.details.get("recipe") == package]
    others = _others(own, [one for one in recipes if one not in own])
    known = [one for one in upstream if not one.trouble]
    if not known:
        broken = next((one.trouble for one in upstream if one.trouble), "")
        why = broken or _not_read(trouble) or "upstream's CI builds nothing for it"
        return Status.UNKNOWN, "; ".join([why, *others])
    if not any(split(one.value) for one in known):
        return Status.IN_STEP, f"upstream's are {known[0].value.replace(';', ' ')}"
    lacking: dict[str, list[str]] = {}
    more: dict[str, list[str]] = {}
    for recipe in own:
        for platform, theirs in _comparable(recipe, known):
            _differences(recipe, theirs, platform, lacking, more)
    parts = [f"{archs} is upstream's, not the recipe's{_places(where)}" for archs, where in lacking.items()]
    parts += [f"{archs} is the recipe's, not upstream's{_places(where)}" for archs, where in more.items()]
    status = Status.OLDER if lacking else Status.NEWER if more else Status.IN_STEP
    return status, "; ".join([*(parts or ["the same architectures"]), *others])


def _differences(
    recipe: Finding,
    theirs: Sequence[str],
    platform: str,
    lacking: dict[str, list[str]],
    more: dict[str, list[str]],
) -> None:
    ours = split(recipe.value)
    if missing := [arch for arch in theirs if arch not in ours]:
        lacking.setdefault(", ".join(missing), []).append(platform or recipe.scope)
    if extra := [arch for arch in ours if arch not in theirs]:
        more.setdefault(", ".join(extra), []).append(platform or recipe.scope)


def _places(where: Sequence[str]) -> str:
    named = sorted({place for place in where if place})
    return f" [{', '.join(named)}]" if named else ""


def _others(own: Sequence[Finding], others: Sequence[Finding]) -> list[str]:
    """Say where other recipes here depart from the package's own."""
    found: dict[str, list[str]] = {}
    for other in others:
        alike = [one for one in own if one.scope == other.scope] or own
        if not alike:
            continue
        left_out = [arch for arch in split(alike[0].value) if arch not in split(other.value)]
        if left_out:
            found.setdefault(", ".join(left_out), []).append(other.details.get("recipe", other.name))
    return [f"{', '.join(dict.fromkeys(names))} leaves out {archs}" for archs, names in found.items()]


def _not_read(trouble: str) -> str:
    return f"upstream's lists were not read: {trouble}" if trouble else ""


def _comparable(recipe: Finding, upstream: Sequence[Finding]) -> list[tuple[str, list[str]]]:
    """Return upstream's lists for the platforms that a recipe's list is for, each list once."""
    configs = recipe.details.get("configs", "")
    arm = "linux_aarch64" in configs
    x86 = "linux_64" in configs
    found: dict[tuple[str, ...], str] = {}
    for one in upstream:
        theirs_arm = bool(re.search(r"aarch64|arm|sbsa", one.scope))
        theirs_x86 = bool(re.search(r"x86|linux-64|amd64", one.scope))
        either = theirs_arm == theirs_x86
        if either or (theirs_arm and arm) or (theirs_x86 and x86):
            found.setdefault(tuple(split(one.value)), "" if either or arm != x86 else where(one))
    return [(platform, list(archs)) for archs, platform in found.items()]


def where(finding: Finding) -> str:
    """Return a list's scope without the CUDA version, which the row names already."""
    parts = (part.strip() for part in re.split(r"[;,]", finding.scope))
    return ", ".join(part for part in parts if part and not _CUDA.search(part))


def recipes_in_words(names: Iterable[str], row: ArchRow) -> str:
    """Return whose list it is, in short: ``all recipes``, ``all but pyg-lib``, or names."""
    found = sorted(set(names))
    everybody = {one.details.get("recipe", one.name) for one in row.recipes}
    others = sorted(everybody - set(found))
    if len(everybody) < _MANY or len(found) <= len(others):
        return ", ".join(found)
    return f"all but {', '.join(others)}" if others else "all recipes"


def split(text: str) -> list[str]:
    """Return a list's architectures in one spelling: ``9.0``, ``12.0+PTX``, ``10.0a``."""
    found = []
    for word in re.split(r"[;,\s]+", text.strip()):
        match = _ARCH.match(word)
        if match:
            tail = "+PTX" if "ptx" in word.lower() else ""
            found.append(f"{match[1]}.{match[2]}{match[3]}{tail}")
    return found


def _cuda(finding: Finding) -> str:
    for text in (finding.details.get("cuda", ""), finding.name, finding.scope):
        if match := _CUDA.search(text):
            return f"{match[1]}.{match[2]}" if match[1] else f"{match[3]}.{match[4]}"
    return ""


def _order(cuda: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", cuda))
