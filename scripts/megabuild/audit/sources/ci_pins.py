"""What upstream's CI builds and tests with, read from its tree by the rules of ``ci_rules.py``."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from megabuild.audit.ci_readers import NotFound, Value
from megabuild.audit.ci_rules import CUDA_VERSIONS, PINS, Form, Rule
from megabuild.audit.facts import CiPin, Holds, Outcome, Tree, Where
from megabuild.audit.request import Request

SOURCE = "ci_pins"
_PLATFORMS = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a rule says: as many of the fields of a fact as it knows."""

    rule: Rule
    value: str
    holds: Holds
    where: Where
    trouble: str = ""

    @property
    def fields(self) -> dict[str, Any]:
        """Return what facts of any kind have."""
        known = {"name": self.rule.name, "holds": self.holds, "where": self.where, "trouble": self.trouble}
        return {**known, "what": self.rule.what}


def read(request: Request) -> Outcome:
    """Return a fact for every value, and one with trouble for every rule that no longer fits upstream's tree."""
    return Outcome(
        source=SOURCE,
        facts=tuple(CiPin(value=one.value, **one.fields) for one in said(request, PINS)),
        trouble=no_rule(request, PINS),
    )


def no_rule(request: Request, rules: Sequence[Rule]) -> str:
    """Return why nothing can be said of a package, or an empty string."""
    package = request.target.package
    return "" if any(package in rule.packages for rule in rules) else f"ci_rules.py has no rule for {package}"


def said(request: Request, rules: Sequence[Rule]) -> Iterator[Said]:
    """Yield what some rules say of a package's tree, which is read in one request.

    Raises
    ------
    MegabuildError
        The tree cannot be opened or read.
    """
    ours = [rule for rule in rules if request.target.package in rule.packages]
    if not ours:
        return
    tree = request.tree()
    reading = _Reading(request, tree, [*ours, CUDA_VERSIONS])
    for rule in ours:
        yield from reading.said(rule)


class _Reading:
    def __init__(self, request: Request, tree: Tree, rules: Sequence[Rule]) -> None:
        self._version = request.target.version
        self._tree = tree
        self._names = tuple(tree.names())
        forms = [form for rule in rules for form in rule.forms if form.holds(self._version)]
        wanted = {
            path for form in forms for pattern in form.file.split("|") for path in self._fitting(pattern)
        }
        found = tree.read(sorted(wanted)) if wanted else {}
        self._texts = {path: content.decode("utf-8", errors="replace") for path, content in found.items()}
        self._listed = [
            one.text for several in self._values(CUDA_VERSIONS.forms[0])[0].values() for one in several
        ]
        self._ours = {config.cuda_version for config in request.configs if config.cuda_version}

    def said(self, rule: Rule) -> Iterator[Said]:
        """Yield what the first form says that says anything, or why none does."""
        forms = [form for form in rule.forms if form.holds(self._version)]
        reasons: dict[str, None] = {}
        for form in forms:
            found, problem = self._values(form)
            if not found:
                reasons[problem] = None
                continue
            here = [
                (path, value, self._holds(rule, form, path, value))
                for path, values in found.items()
                for value in values
            ]
            if rule.every_cuda:
                known = {*self._listed, *self._ours}
                here = [one for one in here if not one[2].cuda or known & set(one[2].cuda)]
            for path, value, holds in here:
                where = Where(
                    file=path, line=value.line, url=self._tree.url(path, value.line), commit=self._tree.commit
                )
                yield Said(rule=rule, value=value.text, holds=holds, where=where)
            had = {version for _, _, holds in here for version in holds.cuda or self._listed}
            missing = tuple(version for version in self._listed if version not in had)
            if rule.every_cuda and missing:
                yield self._trouble(rule, f"{form.file} has nothing for CUDA {', '.join(missing)}", missing)
            return
        if reasons:
            yield self._trouble(rule, "; ".join(reasons))

    def _trouble(self, rule: Rule, problem: str, cuda: tuple[str, ...] = ()) -> Said:
        holds = Holds(platforms=rule.platforms, cuda=cuda, elsewhere=rule.elsewhere)
        return Said(rule=rule, value="", holds=holds, where=Where(commit=self._tree.commit), trouble=problem)

    def _fitting(self, pattern: str) -> list[str]:
        return fnmatch.filter(self._names, pattern) if "*" in pattern else [pattern]

    def _values(self, form: Form) -> tuple[Mapping[str, Sequence[Value]], str]:
        """Return the values by file, or nothing and why that is."""
        for pattern in form.file.split("|"):
            files = [path for path in self._fitting(pattern) if path in self._texts]
            files = [path for path in files if re.search(form.where, path)]
            if files:
                break
        else:
            # a folder that stands for the tree may hold a part of it only
            where = "upstream's tree" if self._tree.commit else "the folder that stands for upstream's tree"
            return {}, f"{form.file.replace('|', ' or ')} is not in {where}"
        found: dict[str, Sequence[Value]] = {}
        problems = []
        for path in files:
            try:
                found[path] = form.read(self._texts[path])
            except NotFound as error:
                problems.append(f"{path} {error}")
        return found, problems[0] if problems else ""

    def _holds(self, rule: Rule, form: Form, path: str, value: Value) -> Holds:
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
            elsewhere=rule.elsewhere,
        )
