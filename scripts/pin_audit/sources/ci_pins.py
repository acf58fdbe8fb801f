"""Read the versions that upstream's CI builds with and ships from its tree, by the rules of ``ci_rules.py``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from pin_audit.ci_rules import ARCH_LISTS, PINS, CiRule, NotInFile
from pin_audit.facts import CiPin, Scope, SourceOutcome, UpstreamArchs, Where, split_archs
from pin_audit.request import AuditRequest, Source, local_tree

_PLATFORMS = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}


def read(request: AuditRequest) -> SourceOutcome:
    """Return a fact for every value, and one with trouble for every rule that no longer fits upstream's tree."""
    facts = tuple(CiPin(value=value, **fields) for value, fields in _values(request, PINS))
    return SourceOutcome(facts=facts, applies=bool(facts))


def read_archs(request: AuditRequest) -> SourceOutcome:
    """Return the architectures of upstream's wheels for every CUDA version; ``120`` becomes ``12.0``."""
    facts = []
    for value, fields in _values(request, ARCH_LISTS):
        dotted = (re.sub(r"^(\d+)(\d)$", r"\1.\2", number) for number in value.split(", "))
        facts.append(UpstreamArchs(archs=split_archs(", ".join(dotted)), **fields))
    return SourceOutcome(facts=tuple(facts), applies=bool(facts))


def _values(request: AuditRequest, rules: Sequence[CiRule]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each value that a rule finds in the package's tree, with the fact's other fields.

    If no rule of one name and role finds a value, the fact has a trouble. Raises MegabuildError if the tree cannot be
    read.
    """
    ours = [rule for rule in rules if request.target.package in rule.packages]
    if not ours:
        return
    tree = request.tree()
    contents = tree.read(sorted({rule.file for rule in ours}))
    for (name, what), alike in groupby(ours, key=lambda rule: (rule.name, rule.what)):
        problems: list[str] = []
        fields: dict[str, Any] = {"name": name, "what": what}
        for rule in alike:
            try:
                if rule.file not in contents:
                    raise NotInFile("not in the tree")
                values = rule.read(contents[rule.file].decode("utf-8", errors="replace"))
            except NotInFile as error:
                problems.append(f"{rule.file}: {error}")
                continue
            for value in values:
                platform, cuda = _PLATFORMS.get(value.groups.get("machine", "")), value.groups.get("cuda")
                holds = Scope(platforms=(platform,) if platform else (), cuda=(cuda,) if cuda else ())
                url = tree.url(rule.file, value.line)
                where = Where(file=rule.file, line=value.line, url=url, commit=tree.commit)
                yield value.text, {**fields, "holds": holds, "where": where}
            break
        else:
            trouble = f"{'; '.join(problems)} (if upstream moved it, adapt ci_rules.py)"
            yield "", {**fields, "where": Where(commit=tree.commit), "trouble": trouble}


SOURCES = {
    "ci_pins": Source(read=read, local_files=local_tree),
    "upstream_archs": Source(read=read_archs, local_files=local_tree),
}
