"""Commits that recipes take from git, held against upstream's: of the tag, or of a library that upstream vendors.

Which of two commits is older cannot be told from their hashes, and no third one satisfies both: where they differ, that
is a conflict, unless another version of upstream is looked at than the one that is built here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from megabuild.audit.case import GRAVITY, Case, Judged, Status
from megabuild.audit.git.addresses import parse
from megabuild.audit.model import Finding, Kind, Target
from megabuild.audit.names import Names
from megabuild.audit.specs import Spec, is_version
from megabuild.audit.targets import packages
from megabuild.errors import AuditError

_COMMIT = re.compile(r"[0-9a-fA-F]{7,64}")
_SHOWN = 10


def brief(revision: str) -> str:
    """Return a commit's first digits, and any other revision (a tag, a branch) as it is."""
    return revision[:_SHOWN] if _COMMIT.fullmatch(revision) else revision


def placed(findings: Sequence[Finding], target: Target, names: Names) -> list[tuple[str, Finding]]:
    """Return what goes into which row.

    Parameters
    ----------
    findings:
        All there are. Commits that other packages' recipes pin count where upstream's repository is theirs, or where
        upstream vendors the same library.
    target:
        What is audited.
    names:
        The mapping.

    Returns
    -------
    A row's name and a finding, in the order of the findings.
    """
    own = _own(target)
    vendored: dict[str, dict[str, None]] = {}
    for one in findings:
        if one.kind is Kind.SUBMODULE:
            vendored.setdefault(_repository(one), {})[names.by_submodule(one.name)] = None
    found: list[tuple[str, Finding]] = []
    for one in findings:
        if one.kind is not Kind.RECIPE_COMMIT:
            continue
        where = _repository(one)
        if where in own:
            found.append((target.package, one))
        elif where in vendored:
            found += [(row, one) for row in vendored[where]]
        elif one.details.get("recipe") == target.package:
            found.append((names.by_conda(one.name), one))
    if any(row == target.package for row, _ in found):
        found += [(target.package, one) for one in findings if one.kind is Kind.COMMIT]
    return found


def verdict(case: Case, target: Target) -> Judged | None:
    """Return what there is to say of the commits of a row, or None where no recipe pins one."""
    judged = [_judged(one, case, target) for one in case.findings if one.kind is Kind.RECIPE_COMMIT]
    if not judged:
        return None
    worst = min((status for status, _ in judged), key=GRAVITY.index)
    return worst, "; ".join(dict.fromkeys(text for status, text in judged if status is worst))


def joined(first: Judged | None, second: Judged | None) -> Judged:
    """Return one status for a row: the graver one, with what led to it, and with what there is to say of commits."""
    if first is None or second is None:
        judged = first or second
        assert judged is not None
        return judged
    worst = min(first[0], second[0], key=GRAVITY.index)
    return worst, f"{first[1]}; {second[1]}" if first[0] is worst else second[1]


def _judged(pinned: Finding, case: Case, target: Target) -> Judged:
    own = _repository(pinned) in _own(target)
    whose = pinned.details.get("recipe", "")
    who = "the recipe" if whose == target.package else f"{whose}'s recipe"
    where = f" [{pinned.scope}]" if pinned.scope else ""
    if own:
        commits = {one.value: "" for one in case.findings if one.kind is Kind.COMMIT and one.value}
        has = f"upstream's {target.tag} is"
    else:
        theirs = [one for one in case.findings if one.kind is Kind.SUBMODULE]
        same = [one for one in theirs if _repository(one) == _repository(pinned)]
        commits = {one.details["commit"]: one.value for one in same if one.details.get("commit")}
        has = "upstream vendors"
    if own and pinned.value in (target.tag, f"refs/tags/{target.tag}"):
        return Status.IN_STEP, f"{who} takes upstream's {target.tag}{where}"
    shown = ", ".join(brief(one) + (f" ({text})" if text else "") for one, text in commits.items())
    if not _COMMIT.fullmatch(pinned.value):
        takes = f"{who} takes {pinned.value or 'the newest commit'}{where}, and no certain commit"
        return Status.MISSING, f"{takes}: {has} {shown}" if shown else takes
    pins = f"{who} pins {brief(pinned.value)}{where}"
    if not commits:
        return _silent(pins, own, case)
    if any(one.startswith(pinned.value.lower()) for one in commits):
        return Status.IN_STEP, f"{pins}, as {'upstream has it at ' + target.tag if own else 'upstream does'}"
    status = _apart(pinned, target)
    if status is Status.CONFLICT:
        return status, f"no commit satisfies both: {has} {shown}, {pins}"
    return status, f"{has} {shown}, {pins} for {pinned.details['version']}"


def _silent(pins: str, own: bool, case: Case) -> Judged:
    """Judge a commit beside which upstream has none."""
    kind, what = (Kind.COMMIT, "tag was") if own else (Kind.SUBMODULE, "submodules were")
    if own or (case.entry.submodules and kind in case.troubles):
        return Status.UNKNOWN, f"upstream's {what} not read, {pins}"
    return Status.UNPINNED, f"upstream names no commit, {pins}"


def _apart(pinned: Finding, target: Target) -> Status:
    """Judge two different commits: those of two versions of upstream are as old as these."""
    built = pinned.details.get("version", "")
    if built == target.version or not (is_version(built) and is_version(target.version)):
        return Status.CONFLICT
    return Status.OLDER if Spec(f"<{target.version}").admits(built) else Status.NEWER


def _own(target: Target) -> set[str]:
    """Return upstream's repository as it is known here, and the mirror of it that is asked, if there is one."""
    known = [one.repository for one in packages() if one.name == target.package]
    return {_plain(address) for address in (*known, target.repository)} - {""}


def _repository(finding: Finding) -> str:
    return _plain(finding.details.get("address") or finding.details.get("url", ""))


def _plain(address: str) -> str:
    """Return an address so that all ways to one repository compare equal: https or ssh, with or without ``.git``."""
    try:
        found = parse(address)
    except AuditError:
        return ""
    return f"{found.host}{found.path.rstrip('/').removesuffix('.git')}".lower()
