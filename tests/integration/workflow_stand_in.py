"""A stand-in for GitHub's runners: runs the jobs of a workflow here, one after another, on fresh "machines".

A machine is a clone of the repository's last commit and an empty folder for temporary files, at the same paths for each
job as on GitHub. Both are removed after it, but for the driver's private environment, half a minute to make.
Artifacts are folders. Only what contrib/github/megabuild.yml uses is understood; anything else is an error.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<sign>&&|\|\||==|!=|[!(),])|(?P<name>[A-Za-z_][\w.-]*))"
)
_STATUS = ("always()", "cancelled()", "success()", "failure()")
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "fromJSON": json.loads,
    "join": lambda values, between: between.join(values),
    "endsWith": lambda text, end: str(text).endswith(end),
}


@dataclass(frozen=True, kw_only=True)
class Job:
    """What became of a job."""

    name: str  #: with its Python, where there is one for each
    result: str  #: ``success``, ``failure`` or ``skipped``
    outputs: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, str] = field(default_factory=dict)  #: what its scripts printed, by name
    summary: str = ""


@dataclass(frozen=True, kw_only=True)
class Runners:
    """Machines of a workflow's jobs, and what is kept between these."""

    repository: Path
    folder: Path
    inputs: Mapping[str, str] = field(default_factory=dict)  #: in place of the workflow's defaults
    environ: Mapping[str, str] = field(default_factory=dict)  #: of every machine
    #: of some jobs, by name: comes after what the workflow says, such as another DEADLINE
    overrides: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def run(self, workflow: Path) -> dict[str, Job]:
        """Run all jobs in the order of the file, in which each comes after those that it needs."""
        document = YAML(typ="safe").load(workflow.read_text())
        defined = document["on"]["workflow_dispatch"]["inputs"]
        assert set(self.inputs) <= set(defined)
        given = {"inputs": {name: one["default"] for name, one in defined.items()} | dict(self.inputs)}
        done: dict[str, Job] = {}
        results: dict[str, dict[str, Any]] = {}
        for name, job in document["jobs"].items():
            needed = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
            needs = {one: results[one] for one in needed}
            # GitHub looks at all that a job needs, also at second hand
            fine = all(one["all_fine"] for one in needs.values())
            failed = any(one["result"] == "failure" for one in needs.values())
            legs: list[dict[str, str]] = [{}]
            for key, values in job.get("strategy", {}).get("matrix", {}).items():
                legs = [{**leg, key: value} for leg in legs for value in _filled(values, given)]
            condition = str(job.get("if", ""))
            wanted = _holds(condition, {"needs": needs, **given}, fine=fine, failed=failed)
            made: list[Job] = []
            for leg in legs:
                label = " ".join([name, *leg.values()])
                one = (
                    self._job(label, job, document, {**given, "needs": needs, "matrix": leg})
                    if wanted
                    else Job(name=label, result="skipped")
                )
                made.append(one)
                done[label] = one
            found = {one.result for one in made}
            result = next(one for one in ("failure", "skipped", "success") if one in found)
            outputs = {key: value for one in made for key, value in one.outputs.items()}
            results[name] = {"result": result, "outputs": outputs, "all_fine": fine and result == "success"}
        return done

    def _job(self, label: str, job: Any, document: Any, given: Mapping[str, Any]) -> Job:
        work, temporary = self.folder / "work", self.folder / "_temp"
        if (work / ".venv").is_dir():
            (work / ".venv").rename(self.folder / "_venv")
        for place in (work, temporary):
            shutil.rmtree(place, ignore_errors=True)
        temporary.mkdir(parents=True)
        context: dict[str, Any] = {**given, "runner": {"temp": str(temporary)}, "steps": {}}
        fine, printed, summary = True, {}, temporary / "_summary"
        for number, step in enumerate(job["steps"]):
            if not _holds(str(step.get("if", "")), context, fine=fine):
                continue
            output = temporary / f"_output{number}"
            output.touch()
            if "uses" in step:
                words = {key: _filled(value, context) for key, value in step.get("with", {}).items()}
                self._action(step["uses"], words, work)
                continue
            machine = {
                **_base(os.environ),
                **self.environ,
                "GITHUB_ACTIONS": "true",
                "CI": "true",
                "GITHUB_WORKSPACE": str(work),
                "RUNNER_TEMP": str(temporary),
                "GITHUB_OUTPUT": str(output),
                "GITHUB_STEP_SUMMARY": str(summary),
            }
            for values in (document.get("env", {}), step.get("env", {})):
                machine |= {key: str(_filled(value, context)) for key, value in values.items()}
            machine |= self.overrides.get(label, {})
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
        outputs = {key: str(_filled(value, context)) for key, value in job.get("outputs", {}).items()}
        text = summary.read_text() if summary.exists() else ""
        return Job(
            name=label,
            result="success" if fine else "failure",
            outputs=outputs,
            steps=printed,
            summary=text,
        )

    def _action(self, uses: str, given: Mapping[str, Any], work: Path) -> None:
        action = uses.partition("@")[0]
        assert ".." not in str(given.get("path", "")), "the actions refuse such a path"
        if action == "actions/checkout":
            subprocess.run(["git", "clone", "-q", str(self.repository), str(work)], check=True)
            if (self.folder / "_venv").is_dir():  # the driver's own environment, half a minute each time
                (self.folder / "_venv").rename(work / ".venv")
        elif action == "actions/upload-artifact":
            self._upload(given, work)
        elif action == "actions/download-artifact":
            for artifact in sorted((self.folder / "artifacts").glob("*")):
                if fnmatch.fnmatchcase(artifact.name, given["pattern"]):
                    shutil.copytree(
                        artifact, given["path"], dirs_exist_ok=True, copy_function=shutil.copyfile
                    )
        else:
            raise NotImplementedError(uses)

    def _upload(self, given: Mapping[str, Any], work: Path) -> None:
        """Keep files, without hidden ones, as the action does; folders of a single path are not part of the names."""
        target = self.folder / "artifacts" / given["name"]
        if given.get("overwrite"):
            shutil.rmtree(target, ignore_errors=True)
        assert not target.exists(), "an artifact is written once"
        patterns = given["path"].split()
        for pattern in patterns:
            found = [Path(pattern)] if Path(pattern).is_absolute() else sorted(work.glob(pattern))
            for path in found:
                for file in [path] if path.is_file() else sorted(path.rglob("*")):
                    top = path if len(patterns) == 1 and path.is_dir() else work / "output"
                    name = file.relative_to(top)
                    if file.is_file() and not any(part.startswith(".") for part in name.parts):
                        (target / name).parent.mkdir(parents=True, exist_ok=True)
                        shutil.copyfile(file, target / name)


def _base(environ: Mapping[str, str]) -> dict[str, str]:
    """Return this machine's environment without what is this project's or a test's."""
    return {
        key: value
        for key, value in environ.items()
        if not key.startswith(("MEGABUILD_", "GITHUB_", "PYTEST_"))
    }


def _filled(value: Any, context: Mapping[str, Any]) -> Any:
    """Return a value with its expressions evaluated."""
    if not isinstance(value, str):
        return value
    if whole := re.fullmatch(r"\$\{\{([^}]*)\}\}", value):
        return _evaluate(whole[1], context)
    return re.sub(r"\$\{\{(.*?)\}\}", lambda match: _text(_evaluate(match[1], context)), value)


def _holds(condition: str, context: Mapping[str, Any], *, fine: bool, failed: bool = False) -> bool:
    """Return whether an ``if`` holds; one without a function of the status asks for success as well."""
    condition = condition.strip().removeprefix("${{").removesuffix("}}").strip() or "success()"
    asked = any(name in condition for name in _STATUS)
    states = {"always": True, "cancelled": False, "success": fine, "failure": failed}
    return bool(_evaluate(condition, {**context, "()": states})) and (asked or fine)


def _text(value: Any) -> str:
    return {None: "", True: "true", False: "false"}.get(value, str(value))


def _evaluate(expression: str, context: Mapping[str, Any]) -> Any:
    """Return the value of an expression: literals, properties, functions, ``! == != && ||``, from tight to loose."""
    tokens: list[str] = []
    at = 0
    while expression[at:].strip():
        match = _TOKEN.match(expression, at)
        if match is None:
            raise NotImplementedError(f"{expression!r} at {at}")
        tokens.append(match[0].strip())
        at = match.end()
    value, rest = _or(tokens, context)
    if rest:
        raise NotImplementedError(f"{expression!r}: {rest}")
    return value


def _or(tokens: list[str], context: Mapping[str, Any]) -> tuple[Any, list[str]]:
    value, tokens = _and(tokens, context)
    while tokens[:1] == ["||"]:
        other, tokens = _and(tokens[1:], context)
        value = value or other
    return value, tokens


def _and(tokens: list[str], context: Mapping[str, Any]) -> tuple[Any, list[str]]:
    value, tokens = _compared(tokens, context)
    while tokens[:1] == ["&&"]:
        other, tokens = _compared(tokens[1:], context)
        value = value and other
    return value, tokens


def _compared(tokens: list[str], context: Mapping[str, Any]) -> tuple[Any, list[str]]:
    value, tokens = _one(tokens, context)
    if tokens and tokens[0] in ("==", "!="):
        sign = tokens[0]
        other, tokens = _one(tokens[1:], context)
        value = (_text(value) == _text(other)) == (sign == "==")
    return value, tokens


def _one(tokens: list[str], context: Mapping[str, Any]) -> tuple[Any, list[str]]:
    first, rest = tokens[0], tokens[1:]
    if first == "!":
        value, rest = _one(rest, context)
        return not value, rest
    if first == "(":
        value, rest = _or(rest, context)
        assert rest[0] == ")"
        return value, rest[1:]
    if first.startswith("'"):
        return first[1:-1].replace("''", "'"), rest
    if rest[:1] == ["("]:
        arguments, rest = [], rest[1:]
        while rest[0] != ")":
            value, rest = _or(rest[1:] if rest[0] == "," else rest, context)
            arguments.append(value)
        if first in _FUNCTIONS:
            return _FUNCTIONS[first](*arguments), rest[1:]
        return context["()"][first], rest[1:]
    value = context
    for part in first.split("."):
        value = (value or {}).get(part)
    return value, rest
