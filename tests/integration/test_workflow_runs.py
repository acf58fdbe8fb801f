"""contrib/github/megabuild.yml, run job by job by a stand-in for GitHub's runners; a stub stands in for the builds.

A machine is a clone of a repository's last commit and an empty folder for temporary files, at the same paths for each
job as on GitHub. Artifacts are folders. The stand-in understands what this workflow uses, and every step must succeed.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

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


class Context(dict[str, Any]):
    """Values by name, as expressions look for them: one that is not there is empty."""

    def __getattr__(self, name: str) -> Any:
        value = self.get(name, "")
        return Context(value) if isinstance(value, dict) else value


@dataclass(frozen=True, kw_only=True)
class Runners:
    """The machines that run a workflow's jobs, and the files that jobs pass on."""

    repository: Path
    folder: Path
    inputs: Mapping[str, str]  #: in place of the workflow's defaults

    def run(self, workflow: Path) -> dict[str, dict[str, str]]:
        """Run all jobs in the order of the file, in which each comes after those that it needs.

        Returns: What the scripts of each job printed, by name.
        """
        document = YAML(typ="safe").load(workflow.read_text())
        defined = document["on"]["workflow_dispatch"]["inputs"]
        assert set(self.inputs) <= set(defined)
        inputs = {name: one["default"] for name, one in defined.items()} | dict(self.inputs)
        printed = {}
        for name, job in document["jobs"].items():
            assert _holds(job, {"inputs": inputs})
            legs: list[dict[str, str]] = [{}]
            for key, values in job.get("strategy", {}).get("matrix", {}).items():
                legs = [{**leg, key: value} for leg in legs for value in _fill(values, {"inputs": inputs})]
            for leg in legs:
                context = {"inputs": inputs, "matrix": leg}
                printed[" ".join([name, *leg.values()])] = self._run_job(job, document["env"], context)
        return printed

    def _run_job(self, job: Any, variables: Any, given: Mapping[str, Any]) -> dict[str, str]:
        work, temporary = self.folder / "work", self.folder / "_temp"
        for place in (work, temporary):
            shutil.rmtree(place, ignore_errors=True)
        temporary.mkdir(parents=True)
        context: dict[str, Any] = {**given, "runner": {"temp": str(temporary)}, "steps": {}}
        own = ("MEGABUILD_", "GITHUB_", "PYTEST_")
        outside = {key: value for key, value in os.environ.items() if not key.startswith(own)}
        printed = {}
        for number, step in enumerate(job["steps"]):
            if not _holds(step, context):
                continue
            if "uses" in step:
                words = {key: _fill(value, context) for key, value in step.get("with", {}).items()}
                self._act(step["uses"].partition("@")[0], words, work)
                continue
            output = temporary / f"_output{number}"
            output.touch()
            machine = {**outside, "GITHUB_ACTIONS": "true", "CI": "true", "RUNNER_TEMP": str(temporary)}
            machine["GITHUB_OUTPUT"] = str(output)
            for key, value in {**variables, **step.get("env", {})}.items():
                machine[key] = str(_fill(value, context))
            assert "${{" not in step["run"], "what comes from outside belongs into the environment"
            # what `shell: bash` means (docs.github.com, "Workflow syntax", "jobs.<job_id>.steps[*].shell")
            command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
            ran = subprocess.run(
                command, cwd=work, env=machine, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            assert ran.returncode == 0, ran.stdout
            printed[step["name"]] = ran.stdout
            pairs = (line.split("=", 1) for line in output.read_text().splitlines())
            context["steps"][step.get("id", "")] = {"outputs": dict(pairs)}
        return printed

    def _act(self, action: str, given: Mapping[str, Any], work: Path) -> None:
        assert ".." not in str(given.get("path", "")), "the actions refuse such a path"
        if action == "actions/checkout":
            subprocess.run(["git", "clone", "-q", str(self.repository), str(work)], check=True)
        elif action == "actions/upload-artifact":
            self._upload(given, work)
        elif action == "actions/download-artifact":
            for artifact in sorted((self.folder / "artifacts").glob("*")):
                if fnmatch.fnmatchcase(artifact.name, given["pattern"]):
                    shutil.copytree(
                        artifact, given["path"], dirs_exist_ok=True, copy_function=shutil.copyfile
                    )
        else:
            raise NotImplementedError(action)

    def _upload(self, given: Mapping[str, Any], work: Path) -> None:
        """Keep files, without hidden ones, as the action does; a single folder is no part of the names."""
        target = self.folder / "artifacts" / given["name"]
        if given.get("overwrite"):
            shutil.rmtree(target, ignore_errors=True)
        assert not target.exists(), "an artifact is written once"
        absolute = Path(given["path"]).is_absolute()
        for path in [Path(given["path"])] if absolute else sorted(work.glob(given["path"])):
            for file in [path] if path.is_file() else sorted(path.rglob("*")):
                name = file.relative_to(path if path.is_dir() else path.parent)
                if file.is_file() and not any(part.startswith(".") for part in name.parts):
                    (target / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, target / name)


def _fill(value: Any, context: Mapping[str, Any]) -> Any:
    """Return a value with its expressions evaluated."""
    if not isinstance(value, str):
        return value
    if whole := re.fullmatch(r"\$\{\{([^}]*)\}\}", value):
        return _evaluate(whole[1], context)
    return re.sub(r"\$\{\{(.*?)\}\}", lambda match: str(_evaluate(match[1], context)), value)


def _holds(part: Any, context: Mapping[str, Any]) -> bool:
    """Return whether the ``if`` of a job or step holds, with nothing failed or cancelled."""
    condition = str(part.get("if", "always()")).strip().removeprefix("${{").removesuffix("}}")
    functions = {"always": lambda: True, "cancelled": lambda: False, "failure": lambda: False}
    return bool(_evaluate(condition, {**context, **functions}))


def _evaluate(expression: str, context: Mapping[str, Any]) -> Any:
    """Return the value of an expression, which is Python's but for the signs of ``not``, ``and`` and ``or``."""
    names = {
        "fromJSON": json.loads,
        "join": lambda values, between: between.join(values),
        "endsWith": lambda text, end: text.endswith(end),
        **{name: Context(value) if isinstance(value, dict) else value for name, value in context.items()},
    }
    python = re.sub(r"!(?!=)", " not ", expression).replace("&&", " and ").replace("||", " or ")
    return eval(python.strip(), {"__builtins__": {}}, names)


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
    libtorch = [jobs[f"libtorch {part}"]["Build libtorch"] for part in ("first", "second", "last")]
    assert libtorch == ["", "compiled libtorch\nbuilt 3.12\n", "built\n"]
    assert jobs["pytorch 3.13"]["Build pytorch"] == "built 3.13\n"
    assert jobs["rest"]["Build the rest"] == "built\n", "all came from the store"
    packages = {path.name for path in (tmp_path / "artifacts" / "packages").rglob("*.conda")}
    assert packages == {f"pytorch-{python}.conda" for python in ("3.11", "3.12", "3.13")}
    assert list((tmp_path / "artifacts" / "logs-libtorch-second").glob("*.log"))
