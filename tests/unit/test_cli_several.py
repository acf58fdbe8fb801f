"""Several configs in one run: one after the other, whatever becomes of each, and a table in the end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import call

from command_line import running
from command_line.main import megabuild
from command_line.run_command import Invocation, outcome
from groundwork import events
from groundwork.errors import BuildError, ProviderError
from groundwork.package_id import PackageId
from groundwork.result import Result
from megabuild.plan.options import Options
from megabuild.run.summary import PackageResult, Summary

NAMES = ("linux_64_cpu", "linux_64_cuda130", "linux_64_cuda129")
Act = Callable[[], None]


class Runs:
    """What became of every config; a config may have something else to do than to succeed."""

    def __init__(self) -> None:
        self.options: list[Options] = []
        self.acts: dict[str, Act] = {}

    def plan(self, options: Options, *_: object, only_plan: bool) -> Options:
        self.options.append(options)
        return options

    def execute(self, options: Options, report: events.Reporter) -> Summary:
        name = options.config.name
        log = Path("/state") / name / "run.log"
        report(events.RunStarted(config=name, log=log, isolation="host"))
        self.acts.get(name, lambda: None)()
        row = PackageResult(package=PackageId("libtorch", "2.13.0", "cpu_h0_0"), status="built")
        return Summary(ok=True, config=name, packages=(row,), seconds=1.0, log=log, channel=Path("/channel"))

    def names(self) -> list[str]:
        return [options.config.name for options in self.options]


def plan_result(plan: Options) -> Result:
    return Result(format="plan", document={}, lines=[f"plan of {plan.config.name}"])


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Stands in for planning and building."""
    fake = Runs()
    monkeypatch.setattr(running, "make_plan", fake.plan)
    monkeypatch.setattr(running, "execute", fake.execute)
    monkeypatch.setattr(running, "commands", lambda plan, summary: {})
    monkeypatch.setattr(running, "upload", lambda plan, summary: "")
    monkeypatch.setattr(running, "plan_result", plan_result)
    return fake


def fail(error: Exception) -> Act:
    def act() -> None:
        raise error

    return act


def interrupted() -> None:
    signal.raise_signal(signal.SIGTERM)


def row(output: str, config: str) -> list[str]:
    """The line of the closing table for a config, in words."""
    table = output[output.rindex("config ") :]
    return next(line for line in table.splitlines() if line.startswith(config)).split()


def test_each_has_its_plan_its_summary_and_a_row(runs: Runs, invocation: Invocation) -> None:
    result = call(invocation, "build", *NAMES, "--keep-going")
    assert runs.names() == list(NAMES)
    assert all(options.keep_going for options in runs.options)
    assert [line for line in result.stdout.splitlines() if line.startswith(("[", "plan of"))][:2] == [
        "[1/3] linux_64_cpu",
        "plan of linux_64_cpu",
    ]
    assert result.stdout.count("done in 1 s") == 3
    assert row(result.stdout, "linux_64_cuda130")[1:] == ["0", "0", "s", "/state/linux_64_cuda130/run.log"]
    assert result.exit_code == 0


def test_one_config_is_as_it_always_was(runs: Runs, invocation: Invocation) -> None:
    result = call(invocation, "build", "linux_64_cp[u]")
    assert "exit code" not in result.stdout
    assert "[1/1]" not in result.stdout


def test_a_failure_is_told_and_does_not_stop_the_others(runs: Runs, invocation: Invocation) -> None:
    runs.acts["linux_64_cuda130"] = fail(BuildError("no such header", "install it"))
    runs.acts["linux_64_cuda129"] = fail(ProviderError("no mirror"))
    result = call(invocation, "build", *NAMES)
    assert result.exit_code == BuildError.exit_code, "that of the first one that failed"
    assert "error: no such header\n  install it\n  log: /state/linux_64_cuda130/run.log" in result.stderr
    assert [row(result.stdout, name)[1] for name in NAMES] == ["0", "8", "5"]


def test_a_crash_does_not_stop_the_others_either(runs: Runs, invocation: Invocation, tmp_path: Path) -> None:
    runs.acts["linux_64_cpu"] = fail(ZeroDivisionError("by zero"))
    result = call(invocation, "build", *NAMES, "-o", str(tmp_path))
    assert [row(result.stdout, name)[1] for name in NAMES] == ["70", "0", "0"]
    assert list((tmp_path / "logs").glob("crash-*"))


def test_what_does_not_fit_one_config_fails_that_one(runs: Runs, invocation: Invocation) -> None:
    result = call(invocation, "build", "linux_64_cpu", "linux_64_cpu_wheel", "--torch-source", "x.tar.gz")
    assert runs.names() == ["linux_64_cpu"]
    assert "compiles no PyTorch" in result.stderr
    assert result.exit_code == 2


def test_a_signal_ends_it_with_the_table(runs: Runs, invocation: Invocation) -> None:
    runs.acts["linux_64_cuda130"] = interrupted
    result = call(invocation, "build", *NAMES)
    assert (result.exit_code, runs.names()) == (130, list(NAMES[:2]))
    assert [row(result.stdout, name)[1:3] for name in NAMES] == [["0", "0"], ["130", "0"], ["not", "started"]]
    assert "interrupted by SIGTERM" in result.stderr


def test_a_signal_between_two_of_them_ends_it_with_the_table(
    runs: Runs, invocation: Invocation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(action: Callable[[], object], own: Invocation) -> int:
        raise KeyboardInterrupt("SIGTERM")

    monkeypatch.setattr(running, "outcome", broken)
    arguments = ["build", *NAMES]
    assert (
        outcome(lambda: megabuild.main(arguments, standalone_mode=False, obj=invocation), invocation) == 130
    )
    assert row(capsys.readouterr().out, "linux_64_cpu")[1:3] == ["not", "started"]


def test_with_json_there_is_one_document_for_all(runs: Runs, invocation: Invocation) -> None:
    runs.acts["linux_64_cuda130"] = fail(BuildError("no such header"))
    result = call(invocation, "build", *NAMES, "--json")
    document = json.loads(result.stdout)
    first, second, third = document["configs"]
    assert document["exit_code"] == 8
    assert (first["config"], first["exit_code"], first["log"]) == (
        "linux_64_cpu",
        0,
        "/state/linux_64_cpu/run.log",
    )
    assert third["result"]["packages"][0]["status"] == "built"
    assert second["result"]["error"]["kind"] == "BuildError"
    assert second["result"]["error"]["log"] == second["log"]


def test_an_unknown_config_is_refused_before_anything_is_built(runs: Runs, invocation: Invocation) -> None:
    arguments = ["build", "linux_64_cpu", "linux_64_nosuch"]
    assert outcome(lambda: megabuild.main(arguments, standalone_mode=False, obj=invocation), invocation) == 3
    assert not runs.options


@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        ((), "--all"),
        (("linux_64_*", "with space"), "linux_64_*|with space"),
        (("linux_64_cpu", "--", "--rehearse", "-p", "3.12"), "linux_64_cpu|--rehearse|-p|3.12"),
        (("--", "-k"), "--all|-k"),
    ],
)
def test_the_script_is_a_few_words_for_it(
    repository: Path, tmp_path: Path, arguments: tuple[str, ...], call: str
) -> None:
    checkout = tmp_path / "a checkout"
    (checkout / "scripts").mkdir(parents=True)
    shutil.copy(repository / "scripts" / "build-all.sh", checkout / "scripts")
    (checkout / "build-locally.py").write_text(
        "import os, sys; print('|'.join(sys.argv[1:]), os.environ['CPU_COUNT']); sys.exit(8)"
    )
    done = subprocess.run(
        [checkout / "scripts" / "build-all.sh", *arguments],
        env={**os.environ, "CPU_COUNT": "3"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (8, f"{call} 3\n")
