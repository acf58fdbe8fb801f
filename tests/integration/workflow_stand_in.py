"""A stand-in for GitHub's runners: runs the jobs of a workflow here, one after another, on fresh "machines".

A machine is a clone of a repository's last commit and an empty folder for temporary files, at the same paths for each
job as on GitHub. Artifacts are folders. Only what contrib/github/megabuild.yml uses is understood.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

_STATUS = ("always()", "cancelled()", "success()", "failure()")


class Context(dict[str, Any]):
    """Values by name, as expressions look for them: one that is not there is empty."""

    def __getattr__(self, name: str) -> Any:
        value = self.get(name, "")
        return Context(value) if isinstance(value, dict) else value


@dataclass(frozen=True, kw_only=True)
class Job:
    """What became of a job."""

    result: str  #: ``success``, ``failure`` or ``skipped``
    steps: Mapping[str, str] = field(default_factory=dict)  #: what its scripts printed, by name


@dataclass(frozen=True, kw_only=True)
class Runners:
    """Machines of a workflow's jobs, and what is kept between these."""

    repository: Path
    folder: Path
    inputs: Mapping[str, str] = field(default_factory=dict)  #: in place of the workflow's defaults

    def run(self, workflow: Path) -> dict[str, Job]:
        """Run all jobs in the order of the file, in which each comes after those that it needs; return them by name."""
        document = YAML(typ="safe").load(workflow.read_text())
        defined = document["on"]["workflow_dispatch"]["inputs"]
        assert set(self.inputs) <= set(defined)
        inputs = {name: one["default"] for name, one in defined.items()} | dict(self.inputs)
        done: dict[str, Job] = {}
        results: dict[str, str] = {}
        for name, job in document["jobs"].items():
            needed = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
            before = {results[one] for one in needed}
            legs: list[dict[str, str]] = [{}]
            for key, values in job.get("strategy", {}).get("matrix", {}).items():
                legs = [{**leg, key: value} for leg in legs for value in _fill(values, {"inputs": inputs})]
            states = {"success": before <= {"success"}, "failure": "failure" in before}
            wanted = _holds(str(job.get("if", "")), {"inputs": inputs}, states)
            for leg in legs:
                label = " ".join([name, *leg.values()])
                context = {"inputs": inputs, "matrix": leg}
                done[label] = self._run_job(job, document, context) if wanted else Job(result="skipped")
                results[name] = max(results.get(name, ""), done[label].result, key=_badness)
        return done

    def _run_job(self, job: Any, document: Any, given: Mapping[str, Any]) -> Job:
        work, temporary = self.folder / "work", self.folder / "_temp"
        for place in (work, temporary):
            shutil.rmtree(place, ignore_errors=True)
        temporary.mkdir(parents=True)
        context: dict[str, Any] = {**given, "runner": {"temp": str(temporary)}, "steps": {}}
        fine, printed = True, dict[str, str]()
        for number, step in enumerate(job["steps"]):
            if not _holds(str(step.get("if", "")), context, {"success": fine, "failure": not fine}):
                continue
            if "uses" in step:
                words = {key: _fill(value, context) for key, value in step.get("with", {}).items()}
                self._act(step["uses"].partition("@")[0], words, work)
                continue
            output = temporary / f"_output{number}"
            output.touch()
            machine = {
                key: value
                for key, value in os.environ.items()
                if not key.startswith(("MEGABUILD_", "GITHUB_", "PYTEST_"))
            }
            machine |= {"GITHUB_ACTIONS": "true", "CI": "true", "RUNNER_TEMP": str(temporary)}
            machine["GITHUB_OUTPUT"] = str(output)
            for values in (document.get("env", {}), step.get("env", {})):
                machine |= {key: str(_fill(value, context)) for key, value in values.items()}
            assert "${{" not in step["run"], "what comes from outside belongs into the environment"
            # what `shell: bash` means (docs.github.com, "Workflow syntax", "jobs.<job_id>.steps[*].shell")
            command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
            ran = subprocess.run(
                command, cwd=work, env=machine, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            printed[step["name"]] = ran.stdout
            fine = fine and ran.returncode == 0
            pairs = (line.split("=", 1) for line in output.read_text().splitlines())
            context["steps"][step.get("id", "")] = {"outputs": dict(pairs)}
        return Job(result="success" if fine else "failure", steps=printed)

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


def _badness(result: str) -> int:
    return ["", "success", "skipped", "failure"].index(result)


def _fill(value: Any, context: Mapping[str, Any]) -> Any:
    """Return a value with its expressions evaluated."""
    if not isinstance(value, str):
        return value
    if whole := re.fullmatch(r"\$\{\{([^}]*)\}\}", value):
        return _evaluate(whole[1], context)
    return re.sub(r"\$\{\{(.*?)\}\}", lambda match: str(_evaluate(match[1], context)), value)


def _holds(condition: str, context: Mapping[str, Any], states: Mapping[str, bool]) -> bool:
    """Return whether an ``if`` holds; one without a function of the status asks for success as well."""
    condition = condition.strip().removeprefix("${{").removesuffix("}}").strip() or "success()"
    functions = {**{"always": True, "cancelled": False}, **states}
    held = _evaluate(
        condition, {**context, **{name: lambda value=value: value for name, value in functions.items()}}
    )
    return bool(held) and (states["success"] or any(name in condition for name in _STATUS))


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
