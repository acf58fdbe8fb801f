"""contrib/github/megabuild.yml, run job by job in fresh clones by a stand-in for GitHub's runners."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from workflow_stand_in import Runners

from megabuild.configs.config import load
from megabuild.providers.local.interpreters import find

CONFIG = "linux_64_cpu_generic"
WORKFLOW = Path("contrib", "github", "megabuild.yml")


def test_actionlint_finds_nothing(repository: Path) -> None:
    if shutil.which("actionlint") is None:
        pytest.skip("actionlint is not installed")
    done = subprocess.run(["actionlint", "-no-color", repository / WORKFLOW], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_rehearsal_is_continued_and_comes_out_whole(repository: Path, tmp_path: Path) -> None:
    found = find(print)
    config = load(repository, CONFIG)
    (base,) = config.variant["torch_python_base"]
    other = next((python for python in config.pythons if python in found and python != base), None)
    if base not in found or other is None:
        pytest.skip(f"needs Python {base} and another one of {', '.join(config.pythons)}")
    options = "--rehearse --pyg none"
    jobs = Runners(
        repository=repository,
        folder=tmp_path,
        inputs={"config": CONFIG, "first": base, "others": json.dumps([other]), "options": options},
        # less than any machine needs with one compiler at a time
        overrides={"libtorch first": {"DEADLINE": "30s", "CPU_COUNT": "1"}},
    ).run(repository / WORKFLOW)
    assert {name: job.result for name, job in jobs.items()} == dict.fromkeys(jobs, "success"), jobs
    first, second, last = (jobs[f"libtorch {part}"] for part in ("first", "second", "last"))
    assert "to be continued" in first.summary
    assert "libtorch: compile" in second.steps["Build libtorch"]
    assert (
        "libtorch: compile"
        not in last.steps["Build libtorch"] + jobs[f"pytorch {other}"].steps["Build pytorch"]
    )
    assert "nothing is to be built" in jobs["rest"].steps["Build the rest"]
    packages = {path.name for path in (tmp_path / "artifacts" / "packages").rglob("*.conda")}
    for python in (base, other):
        assert any(f"_py{python.replace('.', '')}_" in name for name in packages)
    assert list((tmp_path / "artifacts" / "logs-libtorch-second").glob("*.log"))
