"""Findings at lines: SARIF, GitHub's annotations, and the workflow that uses them."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from audit_samples import asks, report, wheel
from ruamel.yaml import YAML

from command_line.audit import audit
from pin_audit.report import jsonfile
from pin_audit.report.findings import Finding, github, of_report, sarif

CONFLICT = (wheel("sympy", "==1.13.1"), asks("sympy", ">=1.13.3"))


def test_a_row_that_needs_a_decision_is_a_finding_at_its_line() -> None:
    (found,) = of_report(report(*CONFLICT, wheel("fsspec", ">=0.8.5"), asks("fsspec", ">=0.8.5")))
    assert (found.rule, found.level, found.file, found.line) == (
        "conflict",
        "error",
        "recipe/recipe.yaml",
        12,
    )
    assert found.text.startswith("pytorch 2.13.0, sympy: no version satisfies both")
    assert "To do: ask for ==1.13.1" in found.text


def test_a_row_without_a_line_is_a_finding_of_the_recipe() -> None:
    (found,) = of_report(report(wheel("sympy", "==1.13.1")))
    assert (found.file, found.line) == ("recipe/recipe.yaml", None)


def test_sarif_has_what_its_schema_asks_for() -> None:
    found = [Finding("b", "error", "text", "a folder/x.yaml", 3), Finding("a", "warning", "more", "y", None)]
    document = json.loads(sarif(found))
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    assert [one["id"] for one in run["tool"]["driver"]["rules"]] == ["a", "b"]
    first, second = run["results"]
    assert (first["ruleId"], first["ruleIndex"], first["level"]) == ("b", 1, "error")
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "a%20folder/x.yaml"
    assert place["region"] == {"startLine": 3}
    assert "region" not in second["locations"][0]["physicalLocation"]


def test_text_from_outside_is_no_command_of_github() -> None:
    (line,) = github([Finding("r", "warning", "50 %\n::error::no", "a:b,c.yaml", 1)])
    assert line == "::warning file=a%3Ab%2Cc.yaml,line=1,title=audit%3A r::50 %25%0A::error::no"


def test_what_is_no_file_is_written_to_and_stays_what_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        got = pool.submit(pipe.read_text)
        jsonfile.write("text\n", pipe)
        assert got.result(timeout=30) == "text\n"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("job", ["annotations", "release", "table"])
def test_the_workflow_calls_what_there_is(repository: Path, job: str) -> None:
    workflow = YAML(typ="safe").load((repository / ".github/workflows/audit.yml").read_text(encoding="utf-8"))
    steps = [step["run"] for step in workflow["jobs"][job]["steps"] if "run" in step]
    calls = re.findall(r"python3 scripts/megabuild audit (.*)", "\n".join(steps))
    assert calls
    known = {name for parameter in audit.params for name in parameter.opts}
    for call in calls:
        words = [word for word in shlex.split(call) if word.startswith("--")]
        assert set(words) <= known
