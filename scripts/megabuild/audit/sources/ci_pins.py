"""What upstream's CI builds with and ships, read from its tree by the rules of ``ci_rules.py``."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from megabuild.audit.archs import split
from megabuild.audit.ci_readers import CiValue, NotInFile
from megabuild.audit.ci_rules import ARCH_LISTS, PINS, CiForm, CiRule
from megabuild.audit.facts import CiPin, Holds, SourceOutcome, UpstreamArchs, Where
from megabuild.audit.request import AuditRequest
from megabuild.audit.trees import Tree

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

    The first form of a rule that says anything counts; where none does, that is the fact's trouble. Raises
    MegabuildError where the tree cannot be opened or read.
    """
    ours = [rule for rule in rules if request.target.package in rule.packages]
    if not ours:
        return
    tree = request.tree()
    names = tree.names()
    forms = {rule: [form for form in rule.forms if form.holds(request.target.version)] for rule in ours}
    found = tree.read(
        sorted({path for several in forms.values() for form in several for path in _paths(form, names)})
    )
    texts = {path: content.decode("utf-8", errors="replace") for path, content in found.items()}
    for rule, several in forms.items():
        known = {"name": rule.name, "what": rule.what}
        reasons: dict[str, None] = {}
        for form in several:
            values, problem = _read(form, texts, tree)
            reasons[problem] = None
            for path, value in values:
                url = tree.url(path, value.line)
                where = Where(file=path, line=value.line, url=url, commit=tree.commit)
                yield value.text, {**known, "holds": _holds(rule, form, path, value), "where": where}
            if values:
                break
        else:
            holds, where = Holds(platforms=rule.platforms), Where(commit=tree.commit)
            if reasons:
                yield "", {**known, "holds": holds, "where": where, "trouble": "; ".join(reasons)}


def _paths(form: CiForm, names: Sequence[str]) -> list[str]:
    return [path for path in fnmatch.filter(names, form.file) if re.search(form.where, path)]


def _read(form: CiForm, texts: Mapping[str, str], tree: Tree) -> tuple[list[tuple[str, CiValue]], str]:
    """Return the values with their files, or nothing and why that is."""
    found: list[tuple[str, CiValue]] = []
    # a folder that stands for the tree may hold a part of it only
    where = "upstream's tree" if tree.commit else "the folder that stands for upstream's tree"
    problems = [f"{form.file} is not in {where}"]
    for path in _paths(form, tuple(texts)):
        try:
            found += [(path, value) for value in form.read(texts[path])]
        except NotInFile as error:
            problems.append(f"{path} {error}")
    return found, problems[min(1, len(problems) - 1)]


def _holds(rule: CiRule, form: CiForm, path: str, value: CiValue) -> Holds:
    """Write conditions as the audit does: ``130`` is CUDA 13.0."""
    match = re.search(form.where, path)
    known = {**(match.groupdict() if match else {}), **value.groups}
    cuda = re.sub(r"^(?:cu)?(\d{2})(\d)$", r"\1.\2", known.get("cuda") or "")
    platform = _PLATFORMS.get(known.get("machine", ""))
    return Holds(
        platforms=(platform,) if platform else rule.platforms,
        cuda=(cuda,) if cuda else (),
        torch=known.get("torch_version", ""),
        marker=known.get("marker", ""),
    )
