"""Packages whose tests this machine cannot run: built and published, with a word, and tested as soon as that can be."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tiny import Tiny

from command_line.config_end import ConfigEnd
from command_line.run_command import Ending
from groundwork.errors import PackageTestError
from groundwork.machine import machine_platform
from megabuild.plan import planning
from megabuild.run.plan_report import plan_document, plan_lines
from megabuild.run.summary import Summary
from megabuild.store import server
from megabuild.store.published import records

pytestmark = pytest.mark.skipif(machine_platform() != "linux-64", reason="the tiny config is for linux-64")

REASON = "this machine runs no programs for linux-aarch64"


def test_untested_packages_are_published_named_and_tested_later(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    monkeypatch.setenv(server.STORE, str(store))
    monkeypatch.setenv(server.WRITES, "1")
    with monkeypatch.context() as patch:
        patch.setattr(planning, "why_untested", lambda config, isolation, environment: REASON)
        outlook = tiny.outlook()
        assert f"! packages will not be tested: {REASON}" in plan_lines(outlook)
        assert plan_document(outlook)["untested"] == REASON
        summary = tiny.run()
        assert summary.ok
        assert not [text for text in tiny.sentences() if ": tested in" in text]
        assert f"! packages not tested: {REASON}" in summary.result().lines
        assert summary.to_dict()["untested"] == REASON
        assert [row["tested"] for row in summary.to_dict()["packages"]] == [False] * 3
        result = summary.result()
        end = ConfigEnd(name="tiny", ending=Ending(exit_code=result.exit_code, document=result.document))
        assert end.result == "✓ not tested"
        published = records(tiny.options().packages)
        assert [record.is_tested for record in published.values()] == [False] * 3
        assert not list(store.glob("**/*.json")), "other machines get tested packages only, and their trees"
        assert [row.status for row in tiny.run().packages] == ["skipped"] * 3
        lines = plan_lines(tiny.outlook())
        assert not any("will not be tested" in line for line in lines), "nothing is built"
        assert len([line for line in lines if line.endswith("= exists, untested")]) == 3
    again = tiny.run()
    assert len([text for text in tiny.sentences() if ": tested in" in text]) == 3
    assert (again.ok, again.untested, again.staging) == (True, "", "reuse")
    assert all(row.tested for row in again.packages)
    assert all(record.is_tested for record in records(tiny.options().packages).values())
    shutil.rmtree(tiny.output)
    assert tiny.run().ok
    assert not [text for text in tiny.sentences() if ": built" in text], "from the store"


def test_a_package_whose_test_fails_later_is_not_reported_as_built(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(planning, "why_untested", lambda config, isolation, environment: REASON)
        patch.setenv("TINY_FAIL", "wrong")
        assert tiny.run(pythons=("3.12",)).ok
    with pytest.raises(PackageTestError):
        tiny.run(pythons=("3.12",))
    summary = json.loads((tiny.options().state / "run.json").read_text())
    assert {row["name"]: row["status"] for row in summary["packages"]} == {
        "tinylib": "built",
        "tinypy": "failed",
    }


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("linux-64", "to install the packages:"),
        ("osx-arm64", "to install the packages on a osx-arm64 machine:"),
    ],
)
def test_the_command_for_packages_of_another_machine_says_where_it_runs(
    platform: str, expected: str, tmp_path: Path
) -> None:
    summary = Summary(
        ok=True, config="x", packages=(), seconds=1.0, log=tmp_path, channel=tmp_path, use="env create",
        platform=platform,
    )  # fmt: skip
    assert expected in summary.result().lines
