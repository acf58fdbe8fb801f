"""Several configs in one run: one after the other, whatever becomes of each, and a table in the end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from calling import call
from click.testing import Result as CliResult

from command_line import running, several_configs
from command_line.main import megabuild
from command_line.run_command import Invocation, outcome
from groundwork.errors import BuildError, IsolationError, MegabuildError, ProviderError
from groundwork.names import PackageId
from groundwork.result import Result
from megabuild.plan.options import Options
from megabuild.run import commands, session
from megabuild.run.summary import PackageResult, Summary
from megabuild.status.status import Status

NAMES = ("linux_64_cpu", "linux_64_cuda130", "linux_64_cuda129")
Act = Callable[[], None]


@dataclass
class FakePlan:
    """As much of a plan as is asked for."""

    options: Options
    require_programs: Act = lambda: None


class Runs:
    """What became of every config; a config may have something else to do than to succeed."""

    def __init__(self) -> None:
        self.options: list[Options] = []
        self.acts: dict[str, Act] = {}
        self.plans: dict[str, Act] = {}  # what planning does besides
        self.programs: dict[str, Act] = {}  # what the plan's look for programs does
        self.planned: list[str] = []

    def plan(self, options: Options, *_: object, only_plan: bool = False) -> FakePlan:
        self.planned.append(options.config.name)
        self.plans.get(options.config.name, lambda: None)()
        return FakePlan(options, self.programs.get(options.config.name, lambda: None))

    def execute(self, plan: FakePlan, follow: Callable[[Status], None], prepare: object) -> Summary:
        self.options.append(plan.options)
        name = plan.options.config.name
        log = Path("/state") / name / "run.log"
        status = Status(name, Path("/nonexistent"))
        status.record.log = str(log)
        follow(status)
        self.acts.get(name, lambda: None)()
        row = PackageResult(package=PackageId("libtorch", "2.13.0", "cpu_h0_0"), status="built")
        return Summary(ok=True, config=name, packages=(row,), seconds=1.0, log=log, channel=Path("/channel"))

    def names(self) -> list[str]:
        return [options.config.name for options in self.options]


def plan_result(plan: FakePlan, *, verbose: bool = False) -> Result:
    """As a plan with two packages to build, and one that is there."""
    name = plan.options.config.name
    estimate = {"cpu_hours": 4.0, "hours": 1.5}
    document = {
        "packages": [{"exists": False}, {"exists": True}],
        "extensions": {"tasks": [{"exists": False, "file_names": ["x.conda"]}]},
        "estimate": {**estimate, "disk": 18_000_000_000},
    }
    return Result(format="plan", document=document, lines=[f"plan of {name}"])


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    """Stands in for planning and building."""
    fake = Runs()
    monkeypatch.setattr(running, "make_plan", fake.plan)
    monkeypatch.setattr(session, "execute", fake.execute)
    monkeypatch.setattr(commands, "install_line", lambda plan, summary: "")
    monkeypatch.setattr(commands, "upload", lambda plan, summary: "")
    monkeypatch.setattr(running, "plan_result", plan_result)
    monkeypatch.setattr(several_configs, "plan_result", plan_result)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))
    return fake


def fail(error: Exception) -> Act:
    def act() -> None:
        raise error

    return act


def interrupted() -> None:
    signal.raise_signal(signal.SIGTERM)


def row(output: str, config: str, head: str = "config  ") -> list[str]:
    """The line of the closing table for a config, in words."""
    table = output[output.rindex(head) :]
    return next(line for line in table.splitlines() if line.startswith(f"{config} ")).split()


def build(invocation: Invocation, *arguments: str) -> CliResult:
    """Build with an output folder of the test's."""
    return call(invocation, "build", *arguments, "-o", "out")


def test_each_has_its_plan_its_summary_and_a_row(runs: Runs, invocation: Invocation) -> None:
    result = build(invocation, *NAMES, "--keep-going")
    assert runs.planned == [*NAMES, *NAMES], "for the table, and when it is its turn"
    assert runs.names() == list(NAMES)
    assert all(options.keep_going for options in runs.options)
    said = [line for line in result.stdout.splitlines() if line.startswith(("[", "plan of"))]
    assert said[:5] == [*(f"[{n}/3] planning {name}" for n, name in enumerate(NAMES, 1)), f"[1/3] {NAMES[0]}",
                        f"plan of {NAMES[0]}"]  # fmt: skip
    assert result.stdout.count("done in 1 s") == 3
    assert row(result.stdout, "linux_64_cuda130")[1:] == ["1", "0", "0", "0", "s", "✓"]
    assert "  /state/linux_64_cuda130/run.log" in result.stdout
    assert "3 of 3 done" in result.stdout
    assert result.exit_code == 0


def test_one_config_is_as_it_always_was(runs: Runs, invocation: Invocation) -> None:
    result = build(invocation, "linux_64_cp[u]")
    assert runs.planned == ["linux_64_cpu"]
    assert "downloads" not in result.stdout
    assert "[1/1]" not in result.stdout


@pytest.mark.parametrize(("arguments", "told"), [(("linux_64_cpu", "--rehearse"), 1), (("linux_64_cpu",), 0)])
def test_a_rehearsal_ends_with_a_line_that_its_packages_are_a_model(
    runs: Runs, invocation: Invocation, arguments: tuple[str, ...], told: int
) -> None:
    assert build(invocation, *arguments).stdout.count("not PyTorch") == told


def test_a_failure_is_told_and_does_not_stop_the_others(runs: Runs, invocation: Invocation) -> None:
    broken = BuildError("staging of libtorch: x.cpp:2: error: no\nno such header", "install it")
    broken.failure = {"kind": "compiler", "file": "c10/x.cpp", "line": 2, "message": "error: no such header"}
    runs.acts["linux_64_cuda130"] = fail(broken)
    runs.acts["linux_64_cuda129"] = fail(ProviderError("no mirror"))
    result = build(invocation, *NAMES)
    assert result.exit_code == BuildError.exit_code, "that of the first one that failed"
    assert "\nno such header\n  install it\n  log: /state/linux_64_cuda130/run.log" in result.stderr
    assert [row(result.stdout, name)[-1] for name in NAMES] == ["✓", "(8)", "(5)"]
    assert "✗ linux_64_cuda130: c10/x.cpp:2: error: no such header" in result.stdout
    assert result.stderr.count("no mirror") == 1


def test_a_crash_does_not_stop_the_others_either(runs: Runs, invocation: Invocation, tmp_path: Path) -> None:
    runs.acts["linux_64_cpu"] = fail(ZeroDivisionError("by zero"))
    result = build(invocation, *NAMES)
    assert [row(result.stdout, name)[-1] for name in NAMES] == ["(70)", "✓", "✓"]
    (crash,) = (tmp_path / "out" / "logs").glob("crash-*")
    (logs,) = (tmp_path / "out").glob("logs-*.zip")
    assert crash.name in zipfile.ZipFile(logs).namelist()


def test_what_does_not_fit_one_config_fails_that_one(runs: Runs, invocation: Invocation) -> None:
    result = build(invocation, "linux_64_cpu", "linux_64_cpu_wheel", "--torch-source", "x.tar.gz")
    assert runs.names() == ["linux_64_cpu"]
    assert result.stderr.count("compiles no PyTorch") == 1
    assert row(result.stdout, "linux_64_cpu_wheel", "config  ")[1:3] == ["0", "0"]
    assert result.exit_code == 2


def test_a_signal_ends_it_with_the_table(runs: Runs, invocation: Invocation) -> None:
    runs.acts["linux_64_cuda130"] = interrupted
    result = build(invocation, *NAMES)
    assert (result.exit_code, runs.names()) == (130, list(NAMES[:2]))
    assert [row(result.stdout, name)[-1] for name in NAMES] == ["✓", "(130)", "started"]
    assert "interrupted by SIGTERM" in result.stderr


def test_with_json_there_is_one_document_for_all(runs: Runs, invocation: Invocation) -> None:
    runs.acts["linux_64_cuda130"] = fail(BuildError("no such header"))
    result = build(invocation, *NAMES, "--json")
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
    assert (first["plan"]["build"], first["plan"]["there"], first["packages"]["built"]) == (2, 1, 1)
    assert second["reason"] == "no such header"
    assert Path(document["sums"]).is_file()


def test_what_all_take_together_is_told_before_the_first_one_begins(
    runs: Runs, invocation: Invocation
) -> None:
    result = build(invocation, *NAMES)
    before = result.stdout[: result.stdout.index("plan of")]
    assert row(before, "linux_64_cpu") == [
        "linux_64_cpu", "2", "1", "4:00", "h", "1:30", "h", "18.0", "GB"
    ]  # fmt: skip
    assert row(before, "together")[1:3] == ["6", "3"]
    assert row(before, "together")[-2:] == ["54.0", "GB"]


def test_what_cannot_be_planned_is_told_once_before_hours_go_into_the_others(
    runs: Runs, invocation: Invocation
) -> None:
    runs.plans["linux_64_cuda129"] = fail(ProviderError("no mirror"))
    result = build(invocation, *NAMES)
    assert runs.names() == ["linux_64_cpu", "linux_64_cuda130"]
    assert result.stderr.count("no mirror") == 1
    assert row(result.stdout[: result.stdout.index("plan of")], "linux_64_cuda129")[1:] == ["✗", "no", "plan"]
    assert result.exit_code == ProviderError.exit_code


@pytest.mark.parametrize(
    "error", [ProviderError("bubblewrap is lacking"), IsolationError("no engine, bubblewrap is lacking")]
)
def test_a_config_whose_programs_are_not_installed_is_skipped_before_the_others_are_built(
    runs: Runs, invocation: Invocation, error: MegabuildError
) -> None:
    runs.programs["linux_64_cpu"] = fail(error)
    result = build(invocation, *NAMES)
    assert runs.names() == ["linux_64_cuda130", "linux_64_cuda129"]
    assert result.stderr.count("bubblewrap is lacking") == 1
    assert result.exit_code == error.exit_code


def test_a_reason_that_several_have_is_told_once_in_the_end(runs: Runs, invocation: Invocation) -> None:
    for name in NAMES[1:]:
        runs.plans[name] = fail(
            ProviderError(f"{name}: the channel does not answer, and {name} needs an engine")
        )
    result = build(invocation, *NAMES)
    closing = result.stdout[result.stdout.rindex("1 of 3 done") :]
    assert closing.count("does not answer") == 1
    assert all(name in closing for name in NAMES[1:])
    assert max(map(len, closing.splitlines())) <= 80


def test_plans_of_several_end_with_what_they_take_together(runs: Runs, invocation: Invocation) -> None:
    runs.plans["linux_64_cuda129"] = fail(BuildError("cannot be had"))
    result = build(invocation, *NAMES, "--plan")
    assert result.stdout.count("plan of") == 2
    assert row(result.stdout, "together")[1:3] == ["4", "2"]
    assert "✗ linux_64_cuda129: cannot be had" in result.stdout
    assert result.exit_code == 8
    assert not Path("out").exists(), "nothing was made, and nothing is left"
    runs.plans.clear()
    document = json.loads(build(invocation, *NAMES, "--plan", "--json").stdout)
    assert [one["plan"]["hours"] for one in document["configs"]] == [1.5, 1.5, 1.5]
    assert "sums" not in document


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (("linux_64_cuda13*", "--provider", "conda-forge"),
         {"linux_64_cuda130", "linux_64_cuda134", "linux_64_cuda130_generic", "linux_64_cuda134_generic"}),
        (("linux_64_*", "--provider", "debian"), {"linux_64_cpu_debian", "linux_64_cuda124_debian"}),
    ],
)  # fmt: skip
def test_configs_are_chosen_by_provider(
    runs: Runs, invocation: Invocation, arguments: tuple[str, ...], left: set[str]
) -> None:
    result = build(invocation, *arguments)
    assert set(runs.names()) == left, result.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("linux_64_cpu", "--provider", "debian"), "linux_64_cpu is for the provider conda-forge"),
        (("osx_*", "--provider", "debian"), "no config matches 'osx_*'"),
    ],
)
def test_a_choice_that_leaves_nothing_is_a_mistake(
    runs: Runs, invocation: Invocation, arguments: tuple[str, ...], complaint: str
) -> None:
    result = build(invocation, *arguments)
    assert (result.exit_code, runs.names()) == (2, [])
    assert complaint in result.stderr
    assert not Path("out").exists()


def test_an_unknown_config_is_refused_before_anything_is_built(runs: Runs, invocation: Invocation) -> None:
    arguments = ["build", "linux_64_cpu", "linux_64_nosuch", "-o", "out"]
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
