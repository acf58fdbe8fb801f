"""The workflow of `megabuild ci github`, run job by job in fresh clones by a stand-in for GitHub's runners."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from workflow_stand_in import Runners

from megabuild.configs.config import load
from megabuild.providers.local.interpreters import find

CONFIG = "linux_64_cpu_generic"
pytestmark = pytest.mark.slow


def test_a_rehearsal_is_continued_and_comes_out_whole(repository: Path, tmp_path: Path) -> None:
    found = find(print)
    config = load(repository, CONFIG)
    (base,) = config.variant["torch_python_base"]
    other = next((python for python in config.pythons if python in found and python != base), None)
    if base not in found or other is None:
        pytest.skip(f"needs Python {base} and another one of {', '.join(config.pythons)}")
    pythons = [base, other]
    workflow = tmp_path / "workflow.yml"
    command = [
        sys.executable,
        str(repository / "scripts" / "megabuild"),
        "ci",
        "github",
        CONFIG,
        "--rehearse",
    ]
    command += ["--continuations", "1", "--pyg", "none", "--output", str(workflow)]
    subprocess.run([*command, *(word for python in pythons for word in ("--python", python))], check=True)
    first, second = f"{CONFIG}-libtorch", f"{CONFIG}-libtorch-2"
    jobs = Runners(
        repository=repository,
        folder=tmp_path,
        # less than any machine needs with one compiler at a time
        overrides={first: {"DEADLINE": "30s", "CPU_COUNT": "1"}},
    ).run(workflow)
    assert {name: job.result for name, job in jobs.items()} == dict.fromkeys(jobs, "success"), jobs
    assert (jobs[first].outputs["finished"], jobs[second].outputs["finished"]) == ("false", "true")
    assert f"{CONFIG}-rehearsal: to be continued" in jobs[first].summary
    assert "libtorch: compile" not in jobs[f"{CONFIG}-pytorch {other}"].steps["Build pytorch"]
    assert "nothing is to be built" in jobs[f"{CONFIG}-packages"].steps["Fetch all packages"]
    packages = {path.name for path in (tmp_path / "artifacts" / f"{CONFIG}-packages").rglob("*.conda")}
    for python in pythons:
        assert any(f"_py{python.replace('.', '')}_" in name for name in packages)
    assert (tmp_path / "artifacts" / f"{CONFIG}-logs-packages" / "manifest.json").is_file()
