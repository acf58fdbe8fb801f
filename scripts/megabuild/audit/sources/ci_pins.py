"""What upstream's CI builds and tests with, read from its tree by the rules of ``ci_rules.py``."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from megabuild.audit.ci_readers import NotFound, Value
from megabuild.audit.ci_rules import PINS, Form, Rule
from megabuild.audit.facts import CiPin, Holds, Outcome, Where
from megabuild.audit.request import Request
from megabuild.audit.trees import Tree

_PLATFORMS = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}


def read(request: Request) -> Outcome:
    """Return a fact for every value, and one with trouble for every rule that no longer fits upstream's tree."""
    facts = tuple(CiPin(value=value, **known) for value, known in said(request, PINS))
    trouble = no_rule(request, PINS)
    return Outcome(source="ci_pins", facts=facts, trouble=trouble, applies=not trouble)


def no_rule(request: Request, rules: Sequence[Rule]) -> str:
    """Return why nothing can be said of a package, or an empty string."""
    package = request.target.package
    return "" if any(package in rule.packages for rule in rules) else f"ci_rules.py has no rule for {package}"


def said(request: Request, rules: Sequence[Rule]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield what some rules say of a package's tree, which is read in one request: a value, and a fact's other fields.

    The first form of a rule counts that says anything; where none does, that is the fact's trouble.

    Raises
    ------
    MegabuildError
        The tree cannot be opened or read.
    """
    ours = [rule for rule in rules if request.target.package in rule.packages]
    if not ours:
        return
    tree, version = request.tree(), request.target.version
    names = tree.names()
    forms = {rule: [form for form in rule.forms if form.holds(version)] for rule in ours}
    patterns = (pattern for several in forms.values() for form in several for pattern in form.file.split("|"))
    wanted = {path for pattern in patterns for path in _fitting(pattern, names)}
    found = tree.read(sorted(wanted)) if wanted else {}
    texts = {path: content.decode("utf-8", errors="replace") for path, content in found.items()}
    for rule, several in forms.items():
        known = {"name": rule.name, "what": rule.what}
        reasons: dict[str, None] = {}
        for form in several:
            values, problem = _values(form, texts, tree)
            reasons[problem] = None
            for path, value in values:
                url = tree.url(path, value.line)
                where = Where(file=path, line=value.line, url=url, commit=tree.commit)
                yield value.text, {**known, "holds": _holds(rule, form, path, value), "where": where}
            if values:
                break
        else:
            holds = Holds(platforms=rule.platforms)
            if reasons:
                where = Where(commit=tree.commit)
                yield "", {**known, "holds": holds, "where": where, "trouble": "; ".join(reasons)}


def _fitting(pattern: str, names: Sequence[str]) -> list[str]:
    return fnmatch.filter(names, pattern) if "*" in pattern else [pattern]


def _values(form: Form, texts: Mapping[str, str], tree: Tree) -> tuple[list[tuple[str, Value]], str]:
    """Return the values with their files, or nothing and why that is."""
    for pattern in form.file.split("|"):
        files = [path for path in _fitting(pattern, tuple(texts)) if path in texts]
        if files := [path for path in files if re.search(form.where, path)]:
            break
    else:
        # a folder that stands for the tree may hold a part of it only
        where = "upstream's tree" if tree.commit else "the folder that stands for upstream's tree"
        return [], f"{form.file.replace('|', ' or ')} is not in {where}"
    found: list[tuple[str, Value]] = []
    problems = []
    for path in files:
        try:
            found += [(path, value) for value in form.read(texts[path])]
        except NotFound as error:
            problems.append(f"{path} {error}")
    return found, problems[0] if problems else ""


def _holds(rule: Rule, form: Form, path: str, value: Value) -> Holds:
    """Write conditions as the audit does: ``130`` is CUDA 13.0, ``cp314`` Python 3.14, ``cp31*`` all 3.1… left."""
    match = re.search(form.where, path) if form.where else None
    known = {**(match.groupdict() if match else {}), **value.groups}
    cuda, python = known.get("cuda") or "", known.get("python", "")
    if numbers := re.fullmatch(r"(?:cu)?(\d{2})(\d)", cuda):
        cuda = f"{numbers[1]}.{numbers[2]}"
    if numbers := re.fullmatch(r"cp(\d)(\d*)\*?", python):
        python = f"{numbers[1]}.{numbers[2]}" + ("*" if len(numbers[2]) < 2 else "")
    platform = _PLATFORMS.get(known.get("machine", ""))
    return Holds(
        platforms=(platform,) if platform else rule.platforms,
        cuda=(cuda,) if cuda else (),
        pythons=("other" if python == "*" else python,) if python else (),
        torch=known.get("torch_version", ""),
        marker=known.get("marker", ""),
    )
