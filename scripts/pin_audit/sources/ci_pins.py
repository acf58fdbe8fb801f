"""What upstream's CI builds with and ships, read from its tree by the rules of ``ci_rules.py``."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from pin_audit.archs import split
from pin_audit.ci_rules import ARCH_LISTS, PINS, CiRule, CiValue, NotInFile
from pin_audit.facts import CiPin, Scope, SourceOutcome, UpstreamArchs, Where
from pin_audit.request import AuditRequest

_PLATFORMS = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}


def read(request: AuditRequest) -> SourceOutcome:
    """Return a fact for every value, and one with trouble for every rule that no longer fits upstream's tree."""
    facts = tuple(CiPin(value=value, **fields) for value, fields in _values(request, PINS))
    return SourceOutcome(source="ci_pins", facts=facts, applies=bool(facts))


def read_archs(request: AuditRequest) -> SourceOutcome:
    """Return the architectures of upstream's wheels for every CUDA version, or a sentence in place of a list."""
    facts = []
    for value, fields in _values(request, ARCH_LISTS):
        # as in TORCH_CUDA_ARCH_LIST: 120+PTX is 12.0+PTX
        dotted = (re.sub(r"^(\d+)(\d)(?=\+|$)", r"\1.\2", number) for number in value.split(", "))
        archs = split(", ".join(dotted))
        facts.append(UpstreamArchs(archs=archs, value="" if archs else value, **fields))
    return SourceOutcome(source="upstream_archs", facts=tuple(facts), applies=bool(facts))


def _values(request: AuditRequest, rules: Sequence[CiRule]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield what rules say of a package's tree, which is read in one request: a value, and a fact's other fields.

    Where no rule of a name and sense yields anything, that is the fact's trouble. Raises MegabuildError where the tree
    cannot be opened or read.
    """
    ours = [rule for rule in rules if request.target.package in rule.packages]
    if not ours:
        return
    tree = request.tree()
    paths = {
        rule: [path for path in fnmatch.filter(tree.names(), rule.file) if re.search(rule.where, path)]
        for rule in ours
    }
    contents = tree.read(sorted({path for fitting in paths.values() for path in fitting}))
    for (name, what), alike in groupby(ours, key=lambda rule: (rule.name, rule.what)):
        problems: list[str] = []
        fields: dict[str, Any] = {"name": name, "what": what}
        for rule in alike:
            values: list[tuple[str, CiValue]] = []
            reasons = [] if paths[rule] else [f"{rule.file} is not in the tree"]
            for path in paths[rule]:
                try:
                    text = contents[path].decode("utf-8", errors="replace")
                    values += [(path, value) for value in rule.read(text)]
                except NotInFile as error:
                    reasons.append(f"{path} {error}")
            for path, value in values:
                where = Where(file=path, line=value.line, url=tree.url(path, value.line), commit=tree.commit)
                yield value.text, {**fields, "holds": _scope(rule, path, value), "where": where}
            if values:
                break
            problems += reasons[:1]
        else:
            trouble = f"{'; '.join(problems)} (upstream may write it elsewhere: ci_rules.py)"
            yield "", {**fields, "where": Where(commit=tree.commit), "trouble": trouble}


def _scope(rule: CiRule, path: str, value: CiValue) -> Scope:
    """Write conditions as the audit does: ``130`` is CUDA 13.0."""
    match = re.search(rule.where, path)
    groups = {**(match.groupdict() if match else {}), **value.groups}
    cuda = re.sub(r"^(?:cu)?(\d{2})(\d)$", r"\1.\2", groups.get("cuda") or "")
    platform = _PLATFORMS.get(groups.get("machine", ""))
    return Scope(
        platforms=(platform,) if platform else rule.platforms,
        cuda=(cuda,) if cuda else (),
        torch=groups.get("torch_version", ""),
    )
