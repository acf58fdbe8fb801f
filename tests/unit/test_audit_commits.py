"""The commit that a recipe pins, held against that of upstream's tag."""

from __future__ import annotations

import pytest
from audit_samples import audit

from pin_audit.cells import cells
from pin_audit.facts import AnyFact, RecipeCommit, TagCommit
from pin_audit.rows import AuditRow, Status

ONE, OTHER = "1234567abc" + "0" * 30, "fedcba9876" + "0" * 30
PYG, METIS = "https://github.com/pyg-team/pyg-lib.git", "https://github.com/KarypisLab/METIS.git"
TAG = TagCommit(name="pyg-lib", value=ONE)


def pins(commit: str, address: str = PYG, version: str = "2.13.0") -> RecipeCommit:
    """A recipe's commit, where this repository builds some version of what is audited."""
    name = address.rpartition("/")[2].removesuffix(".git")
    return RecipeCommit(name=name, value=commit, address=address, version=version)


def rows(*facts: AnyFact, **troubles: str) -> dict[str, AuditRow]:
    return {row.name: row for row in audit(*facts, package="pyg-lib", troubles=troubles).rows}


@pytest.mark.parametrize(("revision", "built", "status"), [
    (ONE, "2.13.0", Status.IN_STEP), (ONE[:8].upper(), "2.13.0", Status.IN_STEP),
    ("refs/tags/v2.13.0", "2.13.0", Status.IN_STEP), (OTHER, "2.13.0", Status.CONFLICT), (OTHER, "", Status.CONFLICT),
    # of another version a commit is as old as that
    (OTHER, "2.12.1", Status.OLDER), (OTHER, "2.14.0", Status.NEWER),
    # what may become another commit
    ("refs/heads/main", "2.13.0", Status.MISSING), ("", "2.13.0", Status.MISSING),
    ("refs/tags/v2.12.0", "2.13.0", Status.MISSING),
])  # fmt: skip
def test_a_recipes_commit_is_held_against_the_tags(revision: str, built: str, status: Status) -> None:
    row = rows(TAG, pins(revision, version=built))["pyg-lib"]
    assert row.status is status
    assert "1234567abc" in [part.text for part in cells(row)["upstream"]]


def test_a_commit_beside_a_tag_that_was_not_read_is_unknown() -> None:
    assert rows(pins(ONE), upstream_commit="no answer")["pyg-lib"].status is Status.UNKNOWN


@pytest.mark.parametrize(
    "address", [PYG, "git@github.com:PyG-Team/pyg-lib", "https://github.com/pyg-team/pyg-lib/"]
)
def test_every_way_to_upstreams_repository_counts(address: str) -> None:
    assert rows(TAG, pins(ONE, address))["pyg-lib"].status is Status.IN_STEP
    assert rows(TAG, pins(ONE, METIS)) == {}
