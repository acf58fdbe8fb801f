"""Read the versions that upstream's CI builds with and ships from its tree, by the rules of ``ci_rules.py``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from pin_audit.ci_rules import ARCH_LISTS, PINS, CiRule, CiValue, NotInFile
from pin_audit.facts import CiPin, Scope, SourceOutcome, UpstreamArchs, Where, split_archs
from pin_audit.repositories import Repository
from pin_audit.request import AuditRequest, LocalTree, Source, local_tree

#: Between the numbers of an architecture as CMake writes it: ``120``, ``90a``.
_WITHOUT_DOT = re.compile(r"(?:^|(?<=[;, ]))(\d+)(?=\d[af]?(?:\+PTX)?(?:[;, ]|$))")
_SEPARATORS = re.compile(r"[;,\s]+")
_PLATFORMS = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}


@dataclass(frozen=True, kw_only=True)
class FoundValue:
    """A value that a rule found, or why no rule of one name and role found one."""

    rule: CiRule
    text: str = ""
    holds: Scope = field(default_factory=Scope)
    where: Where
    trouble: str = ""


def read(request: AuditRequest) -> SourceOutcome:
    """Return a fact for every value, and one with trouble for every rule that no longer fits upstream's tree."""
    facts = []
    for found in _find_values(request, PINS):
        facts.append(
            CiPin(
                name=found.rule.name,
                what=found.rule.what,
                value=found.text,
                holds=found.holds,
                where=found.where,
                trouble=found.trouble,
            )
        )
    return SourceOutcome(facts=tuple(facts), applies=bool(facts))


def read_archs(request: AuditRequest) -> SourceOutcome:
    """Return the architectures of upstream's wheels for every CUDA version; ``120`` becomes ``12.0``.

    A list with another word is a trouble: without it, the recipe's list would be compared with a part of upstream's.
    """
    facts = []
    for found in _find_values(request, ARCH_LISTS):
        archs = split_archs(_WITHOUT_DOT.sub(r"\1.", found.text))
        trouble = found.trouble
        if len(archs) < len(_words(found.text)):
            trouble = f"{found.rule.file}: not a list of architectures: {found.text}"
            archs = ()
        elif archs and not found.holds.cuda:
            trouble = f"{found.rule.file}: a list for no version of CUDA: {found.text}"
        facts.append(
            UpstreamArchs(
                name=found.rule.name,
                what=found.rule.what,
                archs=archs,
                holds=found.holds,
                where=found.where,
                trouble=trouble,
            )
        )
    return SourceOutcome(facts=tuple(facts), applies=bool(facts))


def _words(text: str) -> list[str]:
    return list(filter(None, _SEPARATORS.split(text)))


def _find_values(request: AuditRequest, rules: Iterable[CiRule]) -> Iterator[FoundValue]:
    """Yield each value that a rule finds in the package's tree.

    Of the rules with one name and role, the first that finds a value counts; if none does, one value has a trouble.
    Raises MegabuildError if the tree cannot be read.
    """
    ours = [rule for rule in rules if request.target.package in rule.packages]
    if not ours:
        return
    tree = request.tree()
    contents = tree.read(sorted({rule.file for rule in ours}))
    for _, alike in groupby(ours, key=lambda rule: (rule.name, rule.what)):
        problems: list[str] = []
        for rule in alike:
            try:
                values = _apply(rule, contents)
            except NotInFile as error:
                problems.append(f"{rule.file}: {error}")
                continue
            for value in values:
                yield FoundValue(
                    rule=rule, text=value.text, holds=_scope(value), where=_place(value, rule, tree)
                )
            break
        else:
            trouble = f"{'; '.join(problems)} (if upstream moved it, adapt ci_rules.py)"
            yield FoundValue(rule=rule, where=Where(commit=tree.commit), trouble=trouble)


def _apply(rule: CiRule, contents: Mapping[str, bytes]) -> Sequence[CiValue]:
    if rule.file not in contents:
        raise NotInFile("not in the tree")
    return rule.read(contents[rule.file].decode("utf-8", errors="replace"))


def _scope(value: CiValue) -> Scope:
    """Return the condition of a value, by its machine and CUDA version."""
    platform = _PLATFORMS.get(value.groups.get("machine", ""))
    cuda = value.groups.get("cuda")
    return Scope(platforms=(platform,) if platform else (), cuda=(cuda,) if cuda else ())


def _place(value: CiValue, rule: CiRule, tree: Repository | LocalTree) -> Where:
    url = tree.url(rule.file, value.line)
    return Where(file=rule.file, line=value.line, url=url, commit=tree.commit)


SOURCES = {
    "ci_pins": Source(read=read, local_files=local_tree),
    "upstream_archs": Source(read=read_archs, local_files=local_tree),
}
