"""Commits that recipes pin, held against those of upstream's tag and of its submodules."""

from __future__ import annotations

import pytest
from audit_samples import audit, has

from pin_audit.cells import cells
from pin_audit.constraints import AuditRow, Status
from pin_audit.facts import AnyFact, Newest, RecipeCommit, Scope, Submodule, TagCommit, Where

ONE, OTHER = "1234567abc" + "0" * 30, "fedcba9876" + "0" * 30
PYG, METIS = "https://github.com/pyg-team/pyg-lib.git", "https://github.com/KarypisLab/METIS.git"
TAG = TagCommit(name="pyg-lib", value=ONE)


def pins(
    commit: str, address: str = PYG, whose: str = "pyg-lib", *, version: str = "2.13.0", config: str = ""
) -> RecipeCommit:
    """A recipe's commit, where this repository builds some version of what is audited."""
    return RecipeCommit(
        name=address.rpartition("/")[2].removesuffix(".git"),
        value=commit,
        holds=Scope(configs=(config,) if config else ()),
        address=address,
        recipe=whose,
        version=version,
    )


def vendors(commit: str, url: str = METIS, value: str = "v5.1.1-7-gabc", trouble: str = "") -> Submodule:
    return Submodule(name="third_party/METIS", value=value, commit=commit, address=url, trouble=trouble)


def rows(*facts: AnyFact, package: str = "pyg-lib", **troubles: str) -> dict[str, AuditRow]:
    return {row.name: row for row in audit(*facts, package=package, troubles=troubles).rows}


def test_the_tags_commit_is_in_step() -> None:
    row = rows(TAG, pins(ONE))["pyg-lib"]
    assert row.status is Status.IN_STEP
    assert row.sentence == "the recipe pins 1234567abc, as upstream has it at v2.13.0"
    assert [part.text for part in (*cells(row)["upstream"], *cells(row)["recipe"])] == [
        "1234567abc",
        "1234567abc",
    ]


def test_a_short_hash_of_the_tags_commit_is_in_step() -> None:
    assert rows(TAG, pins(ONE[:8].upper()))["pyg-lib"].status is Status.IN_STEP


def test_another_commit_than_the_tags_is_a_conflict() -> None:
    row = rows(TAG, pins(OTHER))["pyg-lib"]
    assert row.status is Status.CONFLICT
    assert row.sentence == (
        "no commit satisfies both: upstream's v2.13.0 is 1234567abc, the recipe pins fedcba9876"
    )


@pytest.mark.parametrize(
    ("built", "status"),
    [("2.12.1", Status.OLDER), ("2.14.0", Status.NEWER), ("2.13.0", Status.CONFLICT), ("", Status.CONFLICT)],
)
def test_of_another_version_a_commit_is_as_old_as_that(built: str, status: Status) -> None:
    found = rows(TAG, pins(OTHER, version=built), vendors(ONE), pins(OTHER, METIS, "x", version=built))
    assert (found["pyg-lib"].status, found["metis"].status) == (status, status)
    said = found["pyg-lib"].sentence
    assert said.endswith(f" for {built}") is (status is not Status.CONFLICT)
    assert said.startswith("no commit satisfies both") is (status is Status.CONFLICT)


def test_the_worst_of_several_configs_counts() -> None:
    row = rows(TAG, pins(ONE, config="osx_arm64_cpu"), pins(OTHER, config="linux_64_cuda129"))["pyg-lib"]
    assert row.status is Status.CONFLICT
    assert row.sentence.endswith("the recipe pins fedcba9876 [cuda129]")


def test_a_tag_is_as_good_as_its_commit() -> None:
    assert rows(TAG, pins("refs/tags/v2.13.0"))["pyg-lib"].status is Status.IN_STEP


@pytest.mark.parametrize("revision", ["refs/heads/main", "", "refs/tags/v2.12.0"])
def test_what_may_become_another_commit_is_a_missing_pin(revision: str) -> None:
    row = rows(TAG, pins(revision))["pyg-lib"]
    assert row.status is Status.MISSING
    assert "upstream's v2.13.0 is 1234567abc" in row.sentence


def test_a_commit_beside_a_tag_that_was_not_read_is_unknown() -> None:
    assert rows(pins(ONE), upstream_commit="no answer")["pyg-lib"].status is Status.UNKNOWN


@pytest.mark.parametrize(
    "address", [METIS, "git@github.com:karypislab/METIS", "https://github.com/KarypisLab/METIS/"]
)
def test_another_recipes_commit_is_held_against_the_submodule_of_that_repository(address: str) -> None:
    same = rows(vendors(ONE, address), pins(ONE, METIS, "pytorch_sparse"))["metis"]
    apart = rows(vendors(ONE, address), pins(OTHER, METIS, "pytorch_sparse"))["metis"]
    assert same.status is Status.IN_STEP
    assert same.sentence.endswith("; pytorch_sparse's recipe pins 1234567abc, as upstream does")
    assert apart.status is Status.CONFLICT
    assert "upstream vendors 1234567abc (v5.1.1-7-gabc), pytorch_sparse's recipe pins fedc" in apart.sentence
    assert [part.remark for part in cells(same)["recipe"]] == ["[pytorch_sparse]"]
    assert [part.remark for part in cells(same)["upstream"]] == ["(submodule, 1234567abc)"]
    assert not same.vendored_only


def test_a_submodule_that_nothing_describes_is_compared_by_its_commit() -> None:
    silent = vendors(ONE, value="", trouble="no answer")
    row = rows(silent, pins(OTHER, METIS, "pytorch_sparse"))["metis"]
    assert row.status is Status.CONFLICT
    assert [part.text for part in cells(row)["upstream"]] == ["1234567abc"]
    assert rows(silent, pins(ONE, METIS, "pytorch_sparse"))["metis"].sentence.endswith("as upstream does")


def test_a_commit_of_a_library_that_upstream_does_not_vendor_is_shown_with_its_own_recipe_only() -> None:
    newest = has("metis", "5.1.0")
    found = rows(pins(ONE, METIS, "pytorch_sparse"), newest, package="pytorch_sparse")
    assert found["metis"].status is Status.UNPINNED
    assert any(isinstance(one, Newest) for one in found["metis"].facts)
    assert rows(pins(ONE, METIS, "pytorch_sparse"), package="pytorch_cluster") == {}


def test_the_tags_commit_alone_is_no_row_and_stands_in_the_head() -> None:
    made = audit(TAG, package="pyg-lib")
    assert made.rows == ()
    tagged = TagCommit(name="pyg-lib", value=ONE, where=Where(commit=ONE))
    assert audit(tagged, package="pyg-lib").commit == ONE
