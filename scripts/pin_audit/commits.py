"""Compare the commits in recipes with upstream's: the commit of its tag, or of a library that it vendors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from groundwork.errors import AuditError
from pin_audit.facts import AnyFact, AuditTarget, RecipeCommit, Submodule, TagCommit
from pin_audit.name_map import Names
from pin_audit.repositories import parse_address
from pin_audit.rows import AuditRow, Status, Verdict
from pin_audit.targets import packages
from pin_audit.versions import Spec

_COMMIT = re.compile(r"[0-9a-fA-F]{7,64}")


def short_revision(revision: str) -> str:
    """Return a commit's first digits, and any other revision (a tag, a branch) as it is."""
    return revision[:10] if _COMMIT.fullmatch(revision) else revision


def assign_rows(facts: Sequence[AnyFact], target: AuditTarget, names: Names) -> list[tuple[str, AnyFact]]:
    """Return pairs of a row's name and a fact for it, in the order of the facts.

    A commit in another package's recipe counts if it is of upstream's repository or of a library that upstream vendors.
    """
    vendored = {
        (_repository(fact.address), names.by_submodule(fact.name))
        for fact in facts
        if isinstance(fact, Submodule)
    }
    assigned: list[tuple[str, AnyFact]] = []
    for fact in (fact for fact in facts if isinstance(fact, RecipeCommit)):
        repository = _repository(fact.address)
        if repository in _own(target):
            assigned.append((target.package, fact))
        elif rows := sorted(row for address, row in vendored if address == repository):
            assigned += [(row, fact) for row in rows]
        elif fact.recipe == target.package:
            assigned.append((names.by_conda(fact.name), fact))
    if any(row == target.package for row, _ in assigned):
        assigned += [(target.package, fact) for fact in facts if isinstance(fact, TagCommit)]
    return assigned


def judge_commits(row: AuditRow, target: AuditTarget) -> Verdict | None:
    """Return the gravest verdict on the commits of a row, or None if no recipe pins one."""
    verdicts = [_judge(fact, row, target) for fact in row.all(RecipeCommit)]
    return min(verdicts, key=lambda verdict: verdict.gravity, default=None)


def _judge(pinned: RecipeCommit, row: AuditRow, target: AuditTarget) -> Verdict:
    repository, own = _repository(pinned.address), _own(target)
    pins = "the recipe" if pinned.recipe == target.package else f"{pinned.recipe}'s recipe"
    pins += f" pins {short_revision(pinned.value) or 'no commit'}"
    submodules = [fact.commit for fact in row.all(Submodule) if _repository(fact.address) == repository]
    tags = [fact.value for fact in row.all(TagCommit)]
    commits = list(filter(None, tags if repository in own else submodules))
    as_tag = repository in own and pinned.value == f"refs/tags/{target.tag}"
    if not commits:
        unread = repository in own or (row.entry.submodules and "submodules" in row.troubles)
        status = Status.UNKNOWN if unread else Status.UNPINNED
        reason = "upstream's commit was not read" if unread else "upstream does not vendor it"
        return Verdict(status, f"{pins}; {reason}")
    if as_tag or (pinned.value and any(commit.startswith(pinned.value.lower()) for commit in commits)):
        return Verdict(Status.IN_STEP, f"{pins}, as upstream does")
    sentence = f"upstream has {', '.join(map(short_revision, commits))}, {pins}"
    todo = "use upstream's commit, or give the reason in the recipe"
    if not _COMMIT.fullmatch(pinned.value):
        return Verdict(Status.MISSING, sentence, todo)
    if pinned.version in ("", target.version):
        return Verdict(Status.CONFLICT, f"no commit satisfies both: {sentence}", todo)
    # the recipe is for another version of upstream: the older version has the older commit
    status = Status.OLDER if Spec(f"<{target.version}").admits(pinned.version) else Status.NEWER
    return Verdict(status, f"{sentence} for {pinned.version}", todo)


def _own(target: AuditTarget) -> set[str]:
    """Return upstream's repository in packages.yaml, and the mirror that the audit reads, if there is one."""
    repositories = [package.repository for package in packages() if package.name == target.package]
    return {_repository(address) for address in (*repositories, target.repository)} - {""}


def _repository(address: str) -> str:
    """Normalize an address: https and ssh, with and without ``.git``, compare equal."""
    try:
        parts = urlsplit(parse_address(address))
    except AuditError:
        return ""
    return f"{parts.hostname or ''}{parts.path.rstrip('/').removesuffix('.git')}".lower()
