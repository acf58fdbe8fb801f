"""contrib/github/megabuild.yml, run job by job by a stand-in for GitHub's runners; a stub stands in for the builds."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from workflow_stand_in import Runners

WORKFLOW = Path("contrib", "github", "megabuild.yml")
#: Takes two jobs for libtorch, and needs what the jobs before have passed on.
STUB = """
import os, sys
from pathlib import Path
words = sys.argv[1:]
assert words[0] == "linux_64_cpu" and "--rehearse" in words and words[-2:] == ["--deadline", "5h30m"], words
pythons = [word for word in words if word.startswith("3.")] or [word[2:] for word in words if word.startswith("-p")]
store, objects = Path(os.environ["MEGABUILD_STORE"]), Path(os.environ["MEGABUILD_CACHE"], "objects")
output = Path("output")
(output / "linux_64_cpu" / "logs").mkdir(parents=True)
(output / "linux_64_cpu" / "logs" / "a.log").touch()
if not (store / "libtorch").exists():
    if not (objects / "a.o").exists():
        objects.mkdir(parents=True)
        (objects / "a.o").touch()
        sys.exit(28)
    print("compiled libtorch")
store.mkdir(parents=True, exist_ok=True)
(store / "libtorch").touch()
missing = [python for python in pythons if not (store / python).exists()]
print("built", *missing)
for python in missing:
    (store / python).touch()
for python in pythons:
    (output / "packages").mkdir(exist_ok=True)
    (output / "packages" / f"pytorch-{python}.conda").touch()
"""


def test_actionlint_finds_nothing(repository: Path) -> None:
    if shutil.which("actionlint") is None:
        pytest.skip("actionlint is not installed")
    done = subprocess.run(["actionlint", "-no-color", repository / WORKFLOW], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_build_is_continued_and_comes_out_whole(repository: Path, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "build-locally.py").write_text(STUB)
    git = ["git", "-C", str(checkout), "-c", "user.name=me", "-c", "user.email=me@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "stub"]):
        subprocess.run([*git, *words], check=True)
    inputs = {
        "config": "linux_64_cpu",
        "first": "3.12",
        "others": '["3.11", "3.13"]',
        "options": "--rehearse",
    }
    jobs = Runners(repository=checkout, folder=tmp_path, inputs=inputs).run(repository / WORKFLOW)
    assert {name: job.result for name, job in jobs.items()} == dict.fromkeys(jobs, "success"), jobs
    libtorch = [jobs[f"libtorch {part}"].steps["Build libtorch"] for part in ("first", "second", "last")]
    assert libtorch == ["", "compiled libtorch\nbuilt 3.12\n", "built\n"]
    assert jobs["pytorch 3.13"].steps["Build pytorch"] == "built 3.13\n"
    assert jobs["rest"].steps["Build the rest"] == "built\n", "all came from the store"
    packages = {path.name for path in (tmp_path / "artifacts" / "packages").rglob("*.conda")}
    assert packages == {f"pytorch-{python}.conda" for python in ("3.11", "3.12", "3.13")}
    assert list((tmp_path / "artifacts" / "logs-libtorch-second").glob("*.log"))
