"""`megabuild ci github`: what the workflow has, what is refused, and whose files are written over."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from calling import call
from ruamel.yaml import YAML

from command_line.run_command import Invocation
from groundwork.errors import ConfigError, UsageError
from megabuild.ci.settings import continuations, runner
from megabuild.configs.config import available, load

CONFIG = "linux_64_cpu_generic"


@pytest.fixture
def invocation(tmp_path: Path) -> Invocation:
    return Invocation(log_folder=tmp_path)


def written(invocation: Invocation, *arguments: str) -> str:
    done = call(invocation, "ci", "github", *arguments, "--output", "-")
    assert done.exit_code == 0, done.output
    return done.stdout


def parsed(invocation: Invocation, *arguments: str) -> Any:
    return YAML(typ="safe").load(written(invocation, *arguments))


def steps(document: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, job in document["jobs"].items():
        for step in job["steps"]:
            yield name, step


def refused(invocation: Invocation, *arguments: str) -> str:
    done = call(invocation, "ci", "github", *arguments)
    assert done.exit_code == UsageError.exit_code, done.output
    return done.output


def test_jobs_follow_each_other(invocation: Invocation) -> None:
    jobs = parsed(invocation, CONFIG, "--continuations", "2", "-p", "3.13", "-p", "3.12")["jobs"]
    assert list(jobs) == [
        f"{CONFIG}-{part}" for part in ("libtorch", "libtorch-2", "libtorch-3", "pytorch", "packages")
    ]
    assert jobs[f"{CONFIG}-libtorch"].get("needs") is None
    assert jobs[f"{CONFIG}-libtorch-3"]["if"] == f"needs.{CONFIG}-libtorch-2.outputs.finished == 'false'"
    assert jobs[f"{CONFIG}-pytorch"]["needs"] == list(jobs)[:3]
    assert jobs[f"{CONFIG}-pytorch"]["strategy"]["matrix"] == {"python": ["3.13"]}, "3.12 comes with libtorch"
    assert "28)" in jobs[f"{CONFIG}-libtorch-2"]["steps"][2]["run"]
    assert "28)" not in jobs[f"{CONFIG}-libtorch-3"]["steps"][2]["run"], "the last one has to finish"


def test_one_python_has_no_job_of_its_own(invocation: Invocation) -> None:
    jobs = parsed(invocation, CONFIG, "-p", "3.13", "--continuations", "0")["jobs"]
    assert list(jobs) == [f"{CONFIG}-libtorch", f"{CONFIG}-packages"]


def test_wheels_are_taken_apart_in_one_job(invocation: Invocation) -> None:
    assert list(parsed(invocation, "linux_64_cpu_wheel")["jobs"]) == ["linux_64_cpu_wheel-packages"]


def test_scripts_have_no_expressions_and_actions_no_path_that_they_refuse(invocation: Invocation) -> None:
    document = parsed(invocation, "--store", "s3://bucket/prefix", "--on", "pull_request")
    assert document["permissions"] == {"contents": "read"}
    for name, step in steps(document):
        assert "${{" not in step.get("run", ""), name
        # https://github.com/actions/cache/issues/684
        assert ".." not in step.get("with", {}).get("path", ""), name


def test_a_store_of_its_own_needs_no_artifacts_and_gets_the_secrets(invocation: Invocation) -> None:
    document = parsed(invocation, CONFIG, "--store", "s3://bucket/prefix")
    assert "-store-" not in str(document)
    builds = [step["env"] for _, step in steps(document) if "MEGABUILD_STORE" in step.get("env", {})]
    assert len(builds) == 3
    for environment in builds:
        assert environment["MEGABUILD_STORE"] == "${{ 's3://bucket/prefix' }}"
        assert environment["AWS_SECRET_ACCESS_KEY"] == "${{ secrets.AWS_SECRET_ACCESS_KEY }}"


def test_a_fork_gets_neither_the_store_nor_the_secrets(invocation: Invocation) -> None:
    document = parsed(
        invocation, CONFIG, "--store", "https://host/store", "--secret", "TOKEN", "--on", "pull_request"
    )
    fork = "github.event.pull_request.head.repo.fork"
    for _, step in steps(document):
        if "secrets." in str(step):
            assert step["env"]["TOKEN"] == f"${{{{ !{fork} && secrets.TOKEN || '' }}}}"
            assert step["env"]["MEGABUILD_STORE"].startswith(f"${{{{ {fork} && format(")
        elif "-store-" in str(step):
            assert fork in step["if"]


def test_a_store_may_be_a_secret_itself(invocation: Invocation) -> None:
    text = written(invocation, CONFIG, "--store", "${{ secrets.STORE }}")
    assert "MEGABUILD_STORE: ${{ secrets.STORE }}" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--store", "https://user:word@host/x"], "password"),
        (["--store", "s3://a b"], "not an address"),
        (["--store", "x' || secrets.Y || '"], "not an address"),
        (["--runner", "a\nb"], "no label"),
        (["--secret", "A-B"], "name of a secret"),
        (["--python", "2.7"], "has no Python 2.7"),
        (["--deadline", "soon"], "no duration"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], said: str, invocation: Invocation) -> None:
    output = refused(invocation, CONFIG, *arguments, "--output", "-")
    assert said in output
    assert ":word@" not in output


def test_runners(repository: Path, invocation: Invocation) -> None:
    config = load(repository, CONFIG)
    assert runner(config, ()) == ("ubuntu-24.04",)
    assert runner(load(repository, "linux_aarch64_cpu"), ()) == ("ubuntu-24.04-arm",)
    assert runner(config, ("self-hosted", "large")) == ("self-hosted", "large")
    for label, expected in (
        ("hosted", "ubuntu-24.04"),
        ("namespace-profile-16cpu", "namespace-profile-16cpu"),
    ):
        variant = {**config.variant, "github_actions_labels": (label,)}
        assert runner(replaced(config, variant), ()) == (expected,)
    document = parsed(invocation, CONFIG, "--runner", "self-hosted", "--runner", "large", "--deadline", "23h")
    job = document["jobs"][f"{CONFIG}-libtorch"]
    assert (job["runs-on"], job["timeout-minutes"]) == (["self-hosted", "large"], 23 * 60 + 30)


def replaced(config: Any, variant: dict[str, tuple[str, ...]]) -> Any:
    from dataclasses import replace

    return replace(config, variant=variant)


def test_continuations_come_from_the_estimate(repository: Path) -> None:
    cuda, cpu = (load(repository, name) for name in ("linux_64_cuda130", "linux_64_cpu"))
    # 56 and 15 CPU hours (megabuild.plan.estimate)
    assert continuations(cuda, rehearse=False, within="5h30m", cores=4) == 2
    assert continuations(cuda, rehearse=False, within="5h30m", cores=16) == 0
    assert continuations(cpu, rehearse=False, within="1h", cores=4) == 3
    assert continuations(cuda, rehearse=True, within="1h", cores=1) == 0
    with pytest.raises(UsageError, match="would take 56 jobs"):
        continuations(cuda, rehearse=False, within="1h", cores=1)


def test_the_file_names_the_command_and_is_found_stale(tmp_path: Path, invocation: Invocation) -> None:
    path = tmp_path / "new" / "workflow.yml"
    line = ["ci", "github", CONFIG, "--rehearse", "--store", "${{ secrets.STORE }}", "--output", str(path)]
    assert call(invocation, *line).exit_code == 0
    command = re.fullmatch(r"# Generated by `(.*)`; --check compares", path.read_text().splitlines()[0])
    assert command is not None
    words = shlex.split(command[1])
    assert words[:2] == ["python", "scripts/megabuild"]
    assert call(invocation, *words[2:], "--output", str(path), "--check").exit_code == 0
    stale = call(invocation, *line, "--python", "3.12", "--check")
    assert stale.exit_code == ConfigError.exit_code
    assert "write it again" in stale.output
    assert call(invocation, *line, "--python", "3.12").exit_code == 0, (
        "what it has written, it may write again"
    )


@pytest.mark.parametrize("how", ["other", "edited", "link"])
def test_a_file_of_somebody_else_stays(how: str, tmp_path: Path, invocation: Invocation) -> None:
    path = tmp_path / "workflow.yml"
    own = written(invocation, CONFIG)
    mine = {
        "other": "name: mine\n",
        "edited": own.replace("1440", "").replace("megabuild", "mine"),
        "link": own,
    }[how]
    target = tmp_path / "target" if how == "link" else path
    target.write_text(mine)
    if how == "link":
        path.symlink_to(target)
    assert "not written by this command" in refused(invocation, CONFIG, "--output", str(path))
    assert target.read_text() == mine


def test_actionlint_finds_nothing(invocation: Invocation, tmp_path: Path) -> None:
    program = shutil.which("actionlint")
    if program is None:
        pytest.skip("actionlint is not installed")
    linux = [name for name in available(Path(__file__).parents[2]) if name.startswith("linux")]
    lines = (
        [CONFIG, "--rehearse", "--continuations", "1"],
        [*linux, "--on", "push", "--on", "pull_request", "--store", "s3://bucket/prefix"],
        [CONFIG, "--store", "https://host/store", "--secret", "TOKEN"],
    )
    for number, line in enumerate(lines):
        path = tmp_path / f"{number}.yml"
        path.write_text(written(invocation, *line))
        done = subprocess.run([program, "-no-color", str(path)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
