"""The table in recipe/README.md says what the recipe says today."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from megabuild.audit.facts import Requirement
from megabuild.audit.gather import OWN
from megabuild.audit.report.jsonfile import Report
from megabuild.audit.report.markdown import inserted, markdown
from megabuild.cli.audit_report import Options, make

COMMITTED = Path("recipe") / "audit.json"
REMEDY = "run: python scripts/megabuild audit --from recipe/audit.json --source 'recipe_*' --write recipe/README.md"


@pytest.fixture(scope="module")
def renewed(repository: Path) -> Report:
    """The committed report, with what is this repository's own read anew."""
    return make(Options(start=repository / COMMITTED, only=OWN, offline=True, timeout=3600.0), repository)[0]


def test_the_table_is_in_step_with_the_recipe(repository: Path, renewed: Report) -> None:
    table = inserted(repository / "recipe" / "README.md").splitlines()
    assert table == markdown(renewed, level=3).strip().splitlines(), REMEDY


def test_the_table_is_about_the_version_that_is_built(repository: Path, renewed: Report) -> None:
    (audit,) = renewed.audits
    assert (audit.target.package, audit.target.version) == ("pytorch", audit.target.tag.removeprefix("v"))
    assert (
        f"torch_version:\n  - {audit.target.version} " in (repository / "conda_build_config.yaml").read_text()
    )


def test_every_requirement_of_the_wheel_has_a_row(renewed: Report) -> None:
    (audit,) = renewed.audits
    required = [
        one.name for outcome in audit.outcomes for one in outcome.facts if isinstance(one, Requirement)
    ]
    assert len(required) > 10
    assert {one.name for row in audit.rows for one in row.facts if isinstance(one, Requirement)} == set(
        required
    )


def test_there_is_no_conflict_in_our_own_recipe(renewed: Report) -> None:
    conflicts = [
        row.sentence for audit in renewed.audits for row in audit.rows if row.status.value == "conflict"
    ]
    assert conflicts == []


def test_every_value_says_where_it_was_read_and_nothing_of_the_machine(repository: Path) -> None:
    document = json.loads((repository / COMMITTED).read_text())
    facts = [
        one
        for package in document["packages"]
        for source in package["sources"]
        for one in source.get("facts", [])
    ]
    for one in facts:
        if not one.get("trouble"):
            assert one["where"].get("file"), one
            assert not one["where"]["file"].startswith("/"), one
    hosts = set(re.findall(r"https?://([^/\"' ]+)", json.dumps(document)))
    assert hosts <= {"github.com", "gitlab.com", "data.pyg.org"}  # and no index of packages
