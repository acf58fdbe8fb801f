"""Commits that recipes take from git, held against upstream's: of the tag, or of a library that upstream vendors.

Hashes have no order, and no third commit satisfies two: different commits are a conflict, unless the audited version of
upstream is not the one that is built here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from groundwork.errors import AuditError
from pin_audit.addresses import parse_address
from pin_audit.constraints import GRAVITY, AuditRow, Status, Verdict
from pin_audit.facts import AnyFact, AuditTarget, RecipeCommit, Submodule, TagCommit, config_words
from pin_audit.name_map import Names
from pin_audit.targets import packages
from pin_audit.versions import Spec, is_version

_COMMIT = re.compile(r"[0-9a-fA-F]{7,64}")
_SHOWN = 10


def short_revision(revision: str) -> str:
    """Return a commit's first digits, and any other revision (a tag, a branch) as it is."""
    return revision[:_SHOWN] if _COMMIT.fullmatch(revision) else revision


def assign_rows(facts: Sequence[AnyFact], target: AuditTarget, names: Names) -> list[tuple[str, AnyFact]]:
    """Return what goes into which row: a row's name and a fact, in the order of the facts.

    Commits that other packages' recipes pin count where upstream's repository is theirs, or where upstream vendors the
    same library.
    """
    own = _own(target)
    vendored: dict[str, dict[str, None]] = {}
    for fact in facts:
        if isinstance(fact, Submodule):
            vendored.setdefault(_plain(fact.address), {})[names.by_submodule(fact.name)] = None
    found: list[tuple[str, AnyFact]] = []
    for fact in facts:
        if not isinstance(fact, RecipeCommit):
            continue
        where = _plain(fact.address)
        if where in own:
            found.append((target.package, fact))
        elif where in vendored:
            found += [(row, fact) for row in vendored[where]]
        elif fact.recipe == target.package:
            found.append((names.by_conda(fact.name), fact))
    if any(row == target.package for row, _ in found):
        found += [(target.package, fact) for fact in facts if isinstance(fact, TagCommit)]
    return found


def verdict(row: AuditRow, target: AuditTarget) -> Verdict | None:
    """Return what there is to say of the commits of a row, or None where no recipe pins one."""
    judged = [_verdict(fact, row, target) for fact in row.all(RecipeCommit)]
    if not judged:
        return None
    worst = min((status for status, _ in judged), key=GRAVITY.index)
    return worst, "; ".join(dict.fromkeys(text for status, text in judged if status is worst))


def _verdict(pinned: RecipeCommit, row: AuditRow, target: AuditTarget) -> Verdict:
    own = _plain(pinned.address) in _own(target)
    who = "the recipe" if pinned.recipe == target.package else f"{pinned.recipe}'s recipe"
    scope = config_words(pinned.holds.configs, row.builds)
    where = f" [{scope}]" if scope else ""
    if own:
        commits = {fact.value: "" for fact in row.all(TagCommit) if fact.value}
        has = f"upstream's {target.tag} is"
    else:
        theirs = [fact for fact in row.all(Submodule) if _plain(fact.address) == _plain(pinned.address)]
        commits = {one.commit: one.text for one in theirs if one.commit}
        has = "upstream vendors"
    if own and pinned.value in (target.tag, f"refs/tags/{target.tag}"):
        return Status.IN_STEP, f"{who} takes upstream's {target.tag}{where}"
    shown = ", ".join(short_revision(one) + (f" ({text})" if text else "") for one, text in commits.items())
    if not _COMMIT.fullmatch(pinned.value):
        takes = f"{who} takes {pinned.value or 'the newest commit'}{where}, not a fixed commit"
        return Status.MISSING, f"{takes}: {has} {shown}" if shown else takes
    pins = f"{who} pins {short_revision(pinned.value)}{where}"
    if not commits:
        if own or (row.entry.submodules and "submodules" in row.troubles):
            return Status.UNKNOWN, f"upstream's {'tag was' if own else 'submodules were'} not read, {pins}"
        return Status.UNPINNED, f"upstream names no commit, {pins}"
    if any(one.startswith(pinned.value.lower()) for one in commits):
        return Status.IN_STEP, f"{pins}, as {'upstream has it at ' + target.tag if own else 'upstream does'}"
    built = pinned.version
    if built == target.version or not (is_version(built) and is_version(target.version)):
        return Status.CONFLICT, f"no commit satisfies both: {has} {shown}, {pins}"
    # of two versions of upstream: as old as these
    status = Status.OLDER if Spec(f"<{target.version}").admits(built) else Status.NEWER
    return status, f"{has} {shown}, {pins} for {built}"


def _own(target: AuditTarget) -> set[str]:
    """Return upstream's repository as it is known here, and the mirror of it that is asked, if there is one."""
    known = [package.repository for package in packages() if package.name == target.package]
    return {_plain(address) for address in (*known, target.repository)} - {""}


def _plain(address: str) -> str:
    """Return an address so that all ways to one repository compare equal: https or ssh, with or without ``.git``."""
    try:
        parts = urlsplit(parse_address(address))
    except AuditError:
        return ""
    return f"{parts.hostname or ''}{parts.path.rstrip('/').removesuffix('.git')}".lower()
