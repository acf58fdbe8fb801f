"""What upstream's CI builds with and ships, read from its tree by the rules of ``ci_rules.py``."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from pin_audit.archs import split
from pin_audit.ci_readers import CiValue, NotInFile
from pin_audit.ci_rules import ARCH_LISTS, PINS, CiRule
from pin_audit.facts import CiPin, Scope, SourceOutcome, UpstreamArchs, Where
from pin_audit.repositories import Repository
from pin_audit.request import AuditRequest, LocalTree

_PLATFORMS = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}


def read(request: AuditRequest) -> SourceOutcome:
    """Return a fact for every value, and one with trouble for every rule that no longer fits upstream's tree."""
    facts = tuple(CiPin(value=value, **known) for value, known in _values(request, PINS))
    trouble = _no_rule(request, PINS)
    return SourceOutcome(source="ci_pins", facts=facts, trouble=trouble, applies=not trouble)


def read_archs(request: AuditRequest) -> SourceOutcome:
    """Return the architectures of upstream's wheels for every CUDA version, or a sentence in place of a list."""
    facts = []
    for value, known in _values(request, ARCH_LISTS):
        # as in TORCH_CUDA_ARCH_LIST: 120+PTX is 12.0+PTX
        dotted = (re.sub(r"^(\d+)(\d)(?=\+|$)", r"\1.\2", number) for number in value.split(", "))
        archs = split(", ".join(dotted))
        facts.append(UpstreamArchs(archs=archs, value="" if archs else value, **known))
    trouble = _no_rule(request, ARCH_LISTS)
    return SourceOutcome(source="upstream_archs", facts=tuple(facts), trouble=trouble, applies=not trouble)


def _no_rule(request: AuditRequest, rules: Sequence[CiRule]) -> str:
    package = request.target.package
    return "" if any(package in rule.packages for rule in rules) else f"ci_rules.py has no rule for {package}"


def _values(request: AuditRequest, rules: Sequence[CiRule]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield what rules say of a package's tree, which is read in one request: a value, and a fact's other fields.

    Where no rule of a name and sense yields anything, that is the fact's trouble. Raises MegabuildError where the tree
    cannot be opened or read.
    """
    target = request.target
    ours = [rule for rule in rules if rule.holds(target.package, target.version)]
    if not ours:
        return
    tree = request.tree()
    names = tree.names()
    found = tree.read(sorted({path for rule in ours for path in _paths(rule, names)}))
    texts = {path: content.decode("utf-8", errors="replace") for path, content in found.items()}
    for (name, what), alike in groupby(ours, key=lambda rule: (rule.name, rule.what)):
        reasons: dict[str, Scope] = {}
        for rule in alike:
            values, problem = _read(rule, texts, tree)
            reasons[problem] = Scope(platforms=rule.platforms)
            for path, value in values:
                where = Where(file=path, line=value.line, url=tree.url(path, value.line), commit=tree.commit)
                yield (
                    value.text,
                    {"name": name, "what": what, "holds": _holds(rule, path, value), "where": where},
                )
            if values:
                break
        else:
            holds, where = next(iter(reasons.values())), Where(commit=tree.commit)
            trouble = "; ".join(reasons)
            yield "", {"name": name, "what": what, "holds": holds, "where": where, "trouble": trouble}


def _paths(rule: CiRule, names: Sequence[str]) -> list[str]:
    return [path for path in fnmatch.filter(names, rule.file) if re.search(rule.where, path)]


def _read(
    rule: CiRule, texts: Mapping[str, str], tree: Repository | LocalTree
) -> tuple[list[tuple[str, CiValue]], str]:
    """Return the values with their files, or nothing and why that is."""
    found: list[tuple[str, CiValue]] = []
    problems = []
    for path in _paths(rule, tuple(texts)):
        try:
            found += [(path, value) for value in rule.read(texts[path])]
        except NotInFile as error:
            problems.append(f"{path} {error}")
    # a folder that stands for the tree may hold a part of it only
    where = "upstream's tree" if tree.commit else "the folder that stands for upstream's tree"
    return found, problems[0] if problems else f"{rule.file} is not in {where}"


def _holds(rule: CiRule, path: str, value: CiValue) -> Scope:
    """Write conditions as the audit does: ``130`` is CUDA 13.0, ``12\\.[1-2]`` of a script 12.1 and 12.2."""
    match = re.search(rule.where, path)
    known = {**(match.groupdict() if match else {}), **value.groups}
    cuda, major = known.get("cuda") or "", known.get("major") or ""
    if not cuda.startswith(major):  # the condition above was another line's
        cuda = major
    cuda = re.sub(r"^(?:cu)?(\d{2})(\d)$", r"\1.\2", cuda.replace("\\", ""))
    span = re.fullmatch(r"(\d+\.)\[(\d)-(\d)\]", cuda)
    versions = [f"{span[1]}{last}" for last in range(int(span[2]), int(span[3]) + 1)] if span else [cuda]
    platform = _PLATFORMS.get(known.get("machine", ""))
    return Scope(
        platforms=(platform,) if platform else rule.platforms,
        cuda=tuple(filter(None, versions)),
        torch=known.get("torch_version", ""),
        marker=known.get("marker", ""),
    )
