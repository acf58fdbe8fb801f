"""Several configs are planned, and built one after the other, also after a failure, with a table at the end."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from calling import call
from click.testing import Result as CliResult
from rich.console import Console
from tiny import Tiny

from command_line import progress_display, running
from command_line.config_end import ConfigEnd
from command_line.overview import overview_lines
from command_line.run_command import Ending, Invocation
from command_line.side_by_side import Member
from groundwork import in_use
from groundwork.channel import Channel
from groundwork.errors import BuildError, IntegrityError, IsolationError, ProviderError
from groundwork.names import PackageId
from groundwork.result import Result
from megabuild.configs.config import available
from megabuild.plan.options import Options, objects_lock
from megabuild.run import session
from megabuild.run.arrangement import Arrangement
from megabuild.run.estimate import Estimate
from megabuild.run.outlook import Outlook
from megabuild.run.summary import PackageResult, ResultStatus, Summary
from megabuild.status.record import PackageState
from megabuild.status.status import Status, script_lines
from megabuild.store import published

NAMES = ("linux_64_cpu", "linux_64_cuda130", "linux_64_cuda129")
Act = Callable[[], None]
ONE_BY_ONE = Arrangement(groups=[["a", "b", "c"]], places=1, jobs=2, heavy_jobs=0, reason="all share objects")


@dataclass
class FakePlan:
    """The attributes of a plan that the tests need."""

    options: Options
    problem: IsolationError | None = None


class Runs:
    """The calls for each config; a config can be told to fail."""

    def __init__(self) -> None:
        self.options: list[Options] = []
        self.acts: dict[str, Act] = {}
        self.plans: dict[str, Act] = {}  # extra actions while planning
        self.incomplete: set[str] = set()  # configs with a failed package

    def plan(self, options: Options, *_: object) -> FakePlan:
        for lock in (in_use.SHARED, *options.unpacked_names, *map(objects_lock, options.objects_names)):
            with in_use.exclusive_lock(options.cache, lock) as free:
                assert not free, "clean would remove files in use"
        self.plans.get(options.config.name, lambda: None)()
        return FakePlan(options)

    def execute(self, plan: FakePlan, status: Status) -> Summary:
        self.options.append(plan.options)
        self.status = status
        name = plan.options.config.name
        log = Path("/state") / name / "run.log"
        status.record.log = str(log)
        script_lines.info("c++ -c x.cpp")
        row = PackageResult(package=PackageId("libtorch", "2.13.0", "cpu_h0_0"), status=ResultStatus.BUILT)
        ok = name not in self.incomplete
        summary = Summary(ok=ok, config=name, packages=(row,), seconds=1.0, log=log, channel=Path("/channel"))
        status.record.packages[row.package.file_name] = PackageState.PUBLISHED
        self.acts.get(name, lambda: None)()
        return summary

    def names(self) -> list[str]:
        return [options.config.name for options in self.options]


def plan_result(plan: FakePlan, *, verbose: bool = False) -> Result:
    name = plan.options.config.name
    return Result(format="plan", document={"config": name}, lines=[f"plan of {name}"])


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    """Replaces planning and building."""
    fake = Runs()
    monkeypatch.setattr(running, "survey_plan", fake.plan)
    monkeypatch.setattr(running, "preview_plan", fake.plan)
    monkeypatch.setattr(running, "look_ahead", lambda plan, *_: plan)
    monkeypatch.setattr(session, "execute", fake.execute)
    monkeypatch.setattr(running, "plan_result", plan_result)
    monkeypatch.setattr(running, "overview_lines", lambda plans, order: [f"overview of {len(plans)}"])
    monkeypatch.setattr(running, "arrange", lambda plans, **choices: ONE_BY_ONE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))
    return fake


def fail(error: Exception) -> Act:
    def act() -> None:
        raise error

    return act


def interrupted() -> None:
    signal.raise_signal(signal.SIGTERM)


def results(output: str) -> dict[str, str]:
    """Return each config's result in the closing table."""
    table = output[output.rindex("config  ") :].splitlines()[1:]
    return {line.split()[0]: line.split()[-1] for line in table if line}


def build(invocation: Invocation, *arguments: str) -> CliResult:
    """Build with the test's own output folder."""
    return call(invocation, "build", *arguments, "-o", "out")


def test_each_has_its_plan_its_summary_and_a_row(runs: Runs, invocation: Invocation, tmp_path: Path) -> None:
    result = build(invocation, *NAMES, "--keep-going", "-p", "3.12", "-j", "3", "--engine", "docker")
    assert runs.names() == list(NAMES)
    for options in runs.options:
        assert (options.keep_going, options.pythons, options.cpu_count) == (True, ("3.12",), 3)
        assert (options.engine, options.output.name) == ("docker", "out")
    shown = [line for line in result.stdout.splitlines() if line.startswith(("[1/", "plan of"))]
    assert shown[:2] == [f"[1/3] {NAMES[0]}", f"plan of {NAMES[0]}"]
    assert (result.stdout.count("done in 1 s"), result.stdout.count("SHA256SUMS")) == (3, 3)
    assert results(result.stdout) == dict.fromkeys(NAMES, "✓")
    assert result.exit_code == 0
    assert set(in_use.outputs(tmp_path / "cache")) == {tmp_path / "out"}
    alone = build(invocation, "linux_64_cp[u]", "-v")
    assert "[1/1]" not in alone.stdout
    assert ["c++ -c" in output for output in (result.stdout, alone.stdout)] == [False, True]


def test_the_status_of_a_run_is_shown(
    runs: Runs, invocation: Invocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_display, "_QUIET_SECONDS", 0.0)

    def act() -> None:
        runs.status.task("pytorch").begin("libtorch: compile")
        runs.status.watch()

    runs.acts[NAMES[0]] = act
    assert "libtorch: compile" in build(invocation, NAMES[0]).stdout


def test_a_failure_is_reported_and_does_not_stop_the_others(
    runs: Runs, invocation: Invocation, tmp_path: Path
) -> None:
    runs.acts["linux_64_cpu"] = fail(ZeroDivisionError("by zero"))
    runs.acts["linux_64_cuda130"] = fail(BuildError("x.cpp:2: error: no such header", "install it"))
    runs.plans["linux_64_cuda129"] = fail(ProviderError("no mirror"))
    result = build(invocation, *NAMES)
    assert result.exit_code == 70, "that of the first one that failed"
    assert results(result.stdout) == dict(zip(NAMES, ("70", "8", "5"), strict=True))
    assert "no such header\nhint: install it\nlog: /state/linux_64_cuda130/run.log" in result.stderr
    assert result.stdout.index("overview of 3") < result.stdout.index("[1/3]"), "before anything is built"
    assert list((tmp_path / "out" / "logs").glob("crash-*"))
    assert "libtorch-2.13.0-cpu_h0_0  published" in result.stdout
    assert (tmp_path / "out" / "SHA256SUMS").is_file()


def test_the_overview_has_a_row_per_config_their_sum_and_each_reason(tiny: Tiny) -> None:
    outlook = tiny.outlook()
    gigabyte = Estimate(disk=10**9, packages=10**8, hours=1.5, basis="measured")
    plans: dict[str, Outlook | Exception] = {
        "a": replace(outlook, estimate=gigabyte),
        "b": replace(outlook, estimate=gigabyte),
        "c": ProviderError("no channel", "set a mirror"),
        "d": ZeroDivisionError("by zero"),
    }
    lines = overview_lines(plans, ONE_BY_ONE)
    assert lines[1].split()[:2] == ["a", "build"]
    assert lines[1].split()[-4:] == ["1.0", "GB", "1:30", "h"]
    assert lines[3].split() == ["c", "cannot", "be", "built"]
    assert lines[5].split()[-4:] == ["2.0", "GB", "3:00", "h"]
    assert lines[6].split() == ["with", "--remove-trees", "1.1", "GB"], "the first one's packages stay"
    order = ["", "one config at a time: all share objects"]
    assert lines[7:] == [*order, "", "✗ c: no channel", "", "✗ d: by zero"]
    together = overview_lines(plans, replace(ONE_BY_ONE, places=2))
    assert together[5].split()[-4:] == lines[5].split()[-4:]
    assert together[6].split() == ["with", "--remove-trees", "2.0", "GB"], "both trees at once"


def test_figures_that_are_not_known_are_called_unknown(tiny: Tiny) -> None:
    local = replace(tiny.outlook(), estimate=Estimate())
    plan = local.plan
    channel = Channel.parse("https://conda.example/conda-forge")
    far = replace(plan, environment=replace(plan.environment, channels=(channel,)))
    remote = replace(local, progress=replace(local.progress, plan=far))
    done = replace(local, progress=replace(local.progress, existing=frozenset(plan.file_names)))
    rows = [line.split() for line in overview_lines({"a": local, "b": remote, "c": done}, ONE_BY_ONE)]
    assert rows[1][-4:] == ["0", "B", "unknown", "unknown"]
    assert rows[2][-3:] == ["unknown"] * 3
    assert rows[3][-6:] == ["0", "B", "0", "B", "0", "s"]
    assert rows[4][-3:] == ["unknown"] * 3
    assert rows[5] == ["with", "--remove-trees", "unknown"]


@pytest.mark.parametrize("plan_only", [True, False])
def test_a_config_that_no_engine_here_can_build_is_not_counted_among_those_to_build(
    plan_only: bool, runs: Runs, invocation: Invocation, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has its reason, and neither its packages nor its disk and time."""
    outlook = replace(
        tiny.outlook(), estimate=Estimate(disk=10**9, packages=10**8, hours=1.5, basis="measured")
    )
    refused = IsolationError("only bubblewrap enters its Debian root", "leave out --engine")

    def look_ahead(plan: FakePlan, *_: object) -> Outlook:
        isolation = refused if plan.options.config.name == NAMES[1] else outlook.plan.isolation
        planned = replace(outlook.plan, options=plan.options, isolation=isolation)
        return replace(outlook, progress=replace(outlook.progress, plan=planned))

    arranged: list[str] = []

    def arrange(plans: Mapping[str, Outlook | Exception], **choices: bool) -> Arrangement:
        arranged.extend(name for name, plan in plans.items() if not isinstance(plan, Exception))
        assert choices == {"one_by_one": False, "removes_trees": True}
        return ONE_BY_ONE

    monkeypatch.setattr(running, "look_ahead", look_ahead)
    monkeypatch.setattr(running, "overview_lines", overview_lines)
    monkeypatch.setattr(running, "arrange", arrange)
    result = build(invocation, *NAMES, "--remove-trees", *(["--plan"] if plan_only else []))
    shown = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert f"{NAMES[1]} cannot be built" in shown
    assert f"✗ {NAMES[1]}: only bubblewrap enters its Debian root" in shown
    assert sum(" build " in line for line in shown) == 2
    assert arranged == [NAMES[0], NAMES[2]]
    if not plan_only:
        assert (result.exit_code, runs.names()) == (IsolationError.exit_code, arranged)


def test_logs_that_cannot_be_zipped_are_a_warning(runs: Runs, invocation: Invocation, tmp_path: Path) -> None:
    log = tmp_path / "out" / "linux_64_cpu" / "logs" / "new.log"

    def fail_with_a_log() -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("x")
        (tmp_path / "out" / "logs").write_text("in the way")
        raise BuildError("no such header")

    runs.acts["linux_64_cpu"] = fail_with_a_log
    result = build(invocation, "linux_64_cpu", "--zip-logs")
    assert (result.exit_code, results(result.stdout)) == (8, {"linux_64_cpu": "8"})
    assert "! the logs are not zipped: " in result.stdout
    again = build(invocation, "linux_64_cpu", "--zip-logs", "--json")
    assert json.loads(again.stdout)["logs"] is None


def test_a_signal_stops_the_run_and_the_table_is_printed(runs: Runs, invocation: Invocation) -> None:
    runs.acts |= {"linux_64_cpu": fail(BuildError("no such header")), "linux_64_cuda130": interrupted}
    result = build(invocation, *NAMES)
    assert (result.exit_code, runs.names()) == (130, list(NAMES[:2]))
    assert results(result.stdout) == dict(zip(NAMES, ("8", "130", "started"), strict=True))
    assert "SIGTERM" in result.stderr


def test_with_json_there_is_one_document_for_all(runs: Runs, invocation: Invocation) -> None:
    acts = iter((lambda: None, fail(BuildError("no such header"))))  # the second plan fails
    runs.plans["linux_64_cuda130"] = lambda: next(acts)()
    runs.plans["linux_64_cuda129"] = fail(ZeroDivisionError("by zero"))
    result = build(invocation, *NAMES, "linux_64_cpu_wheel", "--torch-source", "pytorch", "--json")
    document = json.loads(result.stdout)
    first, second, third, wheel = document["configs"]
    assert (document["format"], document["exit_code"]) == ("megabuild/run", 8)
    assert (first["config"], first["exit_code"], first["log"]) == (NAMES[0], 0, "/state/linux_64_cpu/run.log")
    assert first["result"]["packages"][0]["status"] == "built"
    error = second["result"]["error"]
    assert (second["exit_code"], second["log"], error["kind"]) == (8, None, "BuildError")
    assert error["message"] == "no such header"
    assert (third["exit_code"], third["result"]["error"]["kind"]) == (70, "ZeroDivisionError")
    assert (wheel["exit_code"], wheel["result"]["error"]["remedy"]) == (2, "omit --torch-source")
    assert (runs.names(), "plan of" in result.stderr) == ([NAMES[0]], True), "progress for people"


def test_only_trees_of_complete_configs_are_removed(
    runs: Runs, invocation: Invocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []

    def remove_trees(options: Options) -> int:
        removed.append(options.config.name)
        return 10**9

    monkeypatch.setattr(session, "remove_trees", remove_trees)
    runs.incomplete.add(NAMES[1])
    result = build(invocation, *NAMES, "--remove-trees")
    assert (removed, result.exit_code) == ([NAMES[0], NAMES[2]], BuildError.exit_code)
    assert result.stdout.count("work trees removed: 1.0 GB") == 2
    build(invocation, NAMES[0])
    assert len(removed) == 2


def test_plans_of_several_build_nothing(runs: Runs, invocation: Invocation) -> None:
    runs.plans["linux_64_cuda129"] = fail(BuildError("cannot be had"))
    result = build(invocation, *NAMES, "--plan")
    assert (result.stdout.count("plan of"), result.exit_code) == (2, 8)
    assert not Path("out").exists()
    planned = Counter[str]()
    for name in NAMES:
        runs.plans[name] = partial(planned.update, [name])
    document = json.loads(build(invocation, *NAMES[:2], "--plan", "--json").stdout)
    assert planned == dict.fromkeys(NAMES[:2], 1), "the table's plans are shown, not made again"
    assert [entry["result"]["config"] for entry in document["configs"]] == list(NAMES[:2])


def test_a_single_plan_is_no_list(runs: Runs, invocation: Invocation) -> None:
    document = json.loads(build(invocation, NAMES[0], "--plan", "--json").stdout)
    assert (document["format"], document["config"]) == ("megabuild/plan", NAMES[0])
    assert "configs" not in document


def test_configs_are_built_side_by_side_if_they_can_be(
    runs: Runs, invocation: Invocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = replace(ONE_BY_ONE, places=2)
    monkeypatch.setattr(running, "arrange", lambda plans, **choices: together)
    built: list[str] = []

    def build_side_by_side(
        members: Mapping[str, object], order: Arrangement, *_: object
    ) -> dict[str, ConfigEnd]:
        assert order is together
        built.extend(members)
        return {name: ConfigEnd(name=name, ending=Ending(exit_code=0)) for name in members}

    monkeypatch.setattr(running, "build_side_by_side", build_side_by_side)
    assert build(invocation, *NAMES).exit_code == 0
    assert (built, runs.names()) == (list(NAMES), [])
    build(invocation, *NAMES, "--plan")
    assert len(built) == len(NAMES), "a plan builds nothing"


def test_configs_are_chosen_by_provider(runs: Runs, invocation: Invocation, repository: Path) -> None:
    result = build(invocation, "linux_64_cuda13*", "--provider", "conda-forge")
    names = {name for name in available(repository) if name.startswith("linux_64_cuda13")}
    names = {name for name in names if not name.endswith("_wheel")}
    assert {"linux_64_cuda130", "linux_64_cuda130_generic"} < names
    assert (set(runs.names()), result.exit_code) == (names, 0), result.stderr


def test_an_unknown_config_is_refused_before_anything_is_built(runs: Runs, invocation: Invocation) -> None:
    assert build(invocation, "linux_64_cpu", "linux_64_nosuch").exit_code == 3
    assert not runs.options


@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        ((), "--all|--zip-logs"),
        (("linux_64_*", "with space"), "linux_64_*|with space|--zip-logs"),
        (("linux_64_cpu", "--", "--rehearse", "-p", "3.12"), "linux_64_cpu|--zip-logs|--rehearse|-p|3.12"),
        (("--", "-k"), "--all|--zip-logs|-k"),
        (("--plan",), "--all|--zip-logs|--plan"),
        (("linux_64_*", "-k", "--jobs", "3"), "linux_64_*|--zip-logs|-k|--jobs|3"),
    ],
)
def test_build_all_passes_its_arguments_on(
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
    )
    assert (done.returncode, done.stdout) == (8, f"{call} 3\n")


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left"), IntegrityError("no record"), ZeroDivisionError("a bug")],
    ids=repr,
)  # fmt: skip
def test_hashes_that_cannot_be_written_are_told_and_the_builds_keep_their_result(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of the former run stays, with the hashes of former packages."""

    def refuse(_: Path) -> Path:
        raise error

    monkeypatch.setattr(published, "write_sums", refuse)
    written = io.StringIO()
    is_bug = isinstance(error, ZeroDivisionError)
    with pytest.raises(ZeroDivisionError) if is_bug else nullcontext():
        running._write_sums(tmp_path, Console(file=written, width=200))
    assert ("! the packages' hashes are not written: " in written.getvalue()) != is_bug


def test_the_hashes_of_the_packages_are_written_when_all_configs_have_ended(
    tmp_path: Path, invocation: Invocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def side_by_side(members: Mapping[str, Member], *_: object) -> dict[str, ConfigEnd]:
        done.append("built")
        return {name: ConfigEnd(name=name) for name in members}

    monkeypatch.setattr(running, "build_side_by_side", side_by_side)
    monkeypatch.setattr(running, "_write_sums", lambda output, _: done.append(f"hashes in {output.name}"))
    common = {"output": tmp_path / "output", "root": tmp_path, "earlier": (), "build_options": None}
    requests = [SimpleNamespace(name=name, **common) for name in ("built", "refused")]
    options = SimpleNamespace(state=tmp_path, own=False)
    plans = {"built": SimpleNamespace(options=options), "refused": ProviderError("no network")}
    ends = running._build_side_by_side(
        cast(Any, requests), cast(Any, plans), cast(Any, None), Console(stderr=True, quiet=True), invocation
    )
    assert done == ["built", "hashes in output"]
    assert [end.name for end in ends] == ["built", "refused"]
