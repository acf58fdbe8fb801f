"""The commit that a recipe takes from upstream's repository, held against the one of upstream's tag."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from groundwork.errors import AuditError
from pin_audit.facts import AnyFact, AuditTarget, RecipeCommit, TagCommit
from pin_audit.repositories import parse_address
from pin_audit.rows import AuditRow, Status, Verdict
from pin_audit.targets import packages
from pin_audit.versions import Spec

_COMMIT = re.compile(r"[0-9a-fA-F]{7,64}")


def short_revision(revision: str) -> str:
    """Return a commit's first digits, and any other revision (a tag, a branch) as it is."""
    return revision[:10] if _COMMIT.fullmatch(revision) else revision


def compared_commits(facts: Sequence[AnyFact], target: AuditTarget) -> list[AnyFact]:
    """Return the recipe's commits of upstream's repository, and the tag's; nothing where the recipe pins none."""
    # as packages.yaml has it, and the mirror that is asked, if there is one
    addresses = [package.repository for package in packages() if package.name == target.package]
    own = {_repository(address) for address in (*addresses, target.repository)} - {""}
    pinned = [fact for fact in facts if isinstance(fact, RecipeCommit) and _repository(fact.address) in own]
    return [*pinned, *(fact for fact in facts if isinstance(fact, TagCommit))] if pinned else []


def judge_commits(row: AuditRow, target: AuditTarget) -> Verdict | None:
    """Return the gravest verdict on the commits of a row, or None where the recipe pins none."""
    verdicts = [_judge(fact, row, target) for fact in row.all(RecipeCommit)]
    return min(verdicts, key=lambda verdict: verdict.gravity, default=None)


def _judge(pinned: RecipeCommit, row: AuditRow, target: AuditTarget) -> Verdict:
    pins = f"the recipe pins {short_revision(pinned.value) or 'no commit'}"
    commits = [fact.value for fact in row.all(TagCommit) if fact.value]
    if not commits:
        return Verdict(Status.UNKNOWN, f"upstream's commit was not read, {pins}")
    as_tag = pinned.value == f"refs/tags/{target.tag}"
    if as_tag or (pinned.value and any(commit.startswith(pinned.value.lower()) for commit in commits)):
        return Verdict(Status.IN_STEP, f"{pins}, as upstream does")
    sentence = f"upstream has {', '.join(map(short_revision, commits))}, {pins}"
    todo = "take upstream's commit, or say in the recipe why not"
    if not _COMMIT.fullmatch(pinned.value):
        return Verdict(Status.MISSING, sentence, todo)
    if pinned.version in ("", target.version):
        return Verdict(Status.CONFLICT, f"no commit satisfies both: {sentence}", todo)
    # of two versions of upstream: as old as these
    status = Status.OLDER if Spec(f"<{target.version}").admits(pinned.version) else Status.NEWER
    return Verdict(status, f"{sentence} for {pinned.version}", todo)


def _repository(address: str) -> str:
    """Return an address so that all ways to one repository compare equal: https or ssh, with or without ``.git``."""
    try:
        parts = urlsplit(parse_address(address))
    except AuditError:
        return ""
    return f"{parts.hostname or ''}{parts.path.rstrip('/').removesuffix('.git')}".lower()
