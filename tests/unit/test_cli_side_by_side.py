"""Configs that are built at the same time, in processes of their own: order, ends, interrupts and the table.

The processes are stubs, which do what a file with the config's name says.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from rich.console import Console
from small_files import write
from terminal import run_on_terminal, terminal_environ
from tiny import wait_for

from command_line import member, side_by_side
from command_line.build_options import BuildOptions
from command_line.config_end import ConfigEnd
from command_line.member_request import (
    MemberEnded,
    MemberRequest,
    MemberStarted,
    read_answer,
    take_request,
    with_request,
)
from command_line.run_command import Invocation
from command_line.side_by_side import Member, build_side_by_side
from groundwork.interrupts import parse_deadline, stop_on_signals
from groundwork.job_pool import JobPool, PoolMember
from groundwork.option_fields import fill, option_fields
from groundwork.result import Result
from megabuild.configs.provider_name import ProviderName
from megabuild.isolation.engine import Engine
from megabuild.plan.options import Options
from megabuild.plan.run_choices import EnvironmentChoice, PygMode, RunChoices
from megabuild.run.arrangement import Arrangement
from megabuild.status import record

#: The stub: notes its start and end in files, and ends as the config's file says.
STUB = """
import json, os, signal, socket, sys, time
from pathlib import Path
import psutil
request = json.loads(os.environ["MEGABUILD_MEMBER"])
output = Path(request["output"])
name = request["config"]
def say(**answer):
    os.write(1, json.dumps(answer).encode() + b"\\n")
def note(what):
    with (output / "notes").open("a") as file:
        file.write(f"{what} {name}\\n")
    if what == "end":
        (output / f"{name}.ended").touch()
plan = json.loads((output / f"{name}.json").read_text())
def stop(number, frame):
    note(signal.Signals(number).name)
    say(type="MemberEnded", exit_code=130, document={"error": {}}, lines=[], log=None)
    os._exit(130)
if not plan.get("deaf"):
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)
    say(type="MemberStarted", pid=os.getpid())
note("start")
print("compiling", file=sys.stderr)
print(plan.get("last_words", ""), end="", file=sys.stderr)
if plan.get("killed"):
    os.write(1, b'{"type": "MemberEnded", "exit_code": 0, "doc' if plan["killed"] == "writing" else b"")
    os.kill(os.getpid(), signal.SIGKILL)
(output / f"{name}.pool").write_text(json.dumps(request["pool"]))
if plan.get("tests"):
    record = {"format": "megabuild/run-state", "format_version": 4, "config": name, "status": "building"}
    record |= {"pid": os.getpid(), "process_began": psutil.Process().create_time(), "host": socket.gethostname()}
    (output / name).mkdir()
    (output / name / "state.json").write_text(json.dumps(record | {"only_tests_left": True}))
for other in plan.get("until", ()):
    while not (output / f"{other}.ended").exists() and not (output / other).exists():
        time.sleep(0.02)
note("end")
say(type="MemberEnded", exit_code=plan.get("code", 0), document={"of": name}, lines=[f"{name}: summary"], log="/l")
sys.exit(plan.get("code", 0))
"""


class Builds:
    """A folder with stubs' plans and notes."""

    def __init__(self, output: Path, invocation: Invocation) -> None:
        self.output = output
        self.invocation = invocation
        self.shown = io.StringIO()

    def plan(self, name: str, **plan: Any) -> None:
        write(self.output / f"{name}.json", json.dumps(plan))

    def member(self, name: str, *, is_fixed: bool = False) -> Member:
        request = MemberRequest(
            config=name, root=self.output, output=self.output, earlier=(), log_folder=self.output,
            build_options=fill(BuildOptions, defaults()), shows_phases=True,
        )  # fmt: skip
        return Member(request=request, state=self.output / name, is_fixed=is_fixed)

    def build(
        self, *groups: list[str], places: int = 2, jobs: int = 4, starts_early: bool = True
    ) -> dict[str, ConfigEnd]:
        members = {name: self.member(name, is_fixed=name == "fixed") for group in groups for name in group}
        order = Arrangement(groups=groups, places=places, jobs=jobs, heavy_jobs=1, starts_early=starts_early)
        console = Console(file=self.shown, width=80, soft_wrap=True)
        return build_side_by_side(members, order, console, self.invocation)

    def notes(self) -> list[str]:
        return (self.output / "notes").read_text().splitlines()

    def codes(self, ends: Mapping[str, ConfigEnd]) -> dict[str, int | None]:
        return {name: end.ending.exit_code if end.ending else None for name, end in ends.items()}


def defaults() -> dict[str, object]:
    values: dict[str, object] = {}
    for field in option_fields(BuildOptions):
        values[field.name] = False if field.is_switch else () if field.is_repeatable else None
    return {**values, "pyg": PygMode.AUTO, "environments": EnvironmentChoice.AUTO}


@pytest.fixture
def builds(tmp_path: Path, invocation: Invocation, monkeypatch: pytest.MonkeyPatch) -> Builds:
    monkeypatch.setattr(side_by_side, "member_command", lambda: [sys.executable, "-c", STUB])
    return Builds(tmp_path, invocation)


def after(condition: Callable[[], object], act: Callable[[], object]) -> threading.Thread:
    """Do something as soon as something else is true."""

    def watch() -> None:
        wait_for(condition, 30.0)
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_groups_run_at_the_same_time_and_each_in_its_order(builds: Builds) -> None:
    builds.plan("a", until=["b"])  # would never end alone
    builds.plan("b")
    builds.plan("a2", code=7)
    builds.plan("a3")
    ends = builds.build(["a", "a2", "a3"], ["b"])
    assert builds.codes(ends) == {"a": 0, "a2": 7, "a3": 0, "b": 0}
    notes = [note for note in builds.notes() if note.split()[1] != "b"]
    assert notes == [f"{what} {name}" for name in ("a", "a2", "a3") for what in ("start", "end")]
    assert ends["a2"].document() == {"config": "a2", "exit_code": 7, "log": "/l", "result": {"of": "a2"}}
    assert not (builds.output / ".job-pools").exists()


def test_lines_have_the_name_of_their_config(builds: Builds) -> None:
    builds.plan("a")
    builds.plan("b", code=3)
    builds.build(["a"], ["b"])
    lines = [line.partition("] ")[2] or line for line in builds.shown.getvalue().splitlines()]
    shown = [line.partition(" after ")[0] for line in lines]
    for name, result in (("a", "+"), ("b", "x exit code 3")):
        own = [line for line in shown if line.startswith(f"{name}: ")]
        assert own == [f"{name}: started", f"{name}: compiling", f"{name}: {result}", f"{name}: summary"]


def test_words_before_the_end_of_a_process_are_not_lost(
    builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it writes them all after the last look for lines."""
    monkeypatch.setattr(side_by_side._Builds, "_listen", lambda _, seconds: time.sleep(seconds))
    builds.plan("a", code=3, last_words="no line")
    assert builds.codes(builds.build(["a"])) == {"a": 3}
    assert all(word in builds.shown.getvalue() for word in ("a: compiling\n", "a: no line\n", "a: summary\n"))


def test_no_more_configs_run_than_there_are_places(builds: Builds) -> None:
    names = ("a", "b", "c", "d")
    for name in names:
        builds.plan(name)
    builds.build(["a", "b"], ["c"], ["d"], places=1, jobs=4)
    assert builds.notes() == [f"{what} {name}" for name in names for what in ("start", "end")]
    shares = [json.loads((builds.output / f"{name}.pool").read_text())["share"] for name in names]
    assert shares == [4] * len(names), "also after others"


def test_a_config_starts_while_the_one_before_in_its_group_tests_its_packages(builds: Builds) -> None:
    builds.plan("a", tests=True, until=["a2"])  # would never end before it
    builds.plan("a2")
    builds.plan("b")
    ends = builds.build(["a", "a2"], ["b"], places=1)
    assert builds.codes(ends) == {"a": 0, "a2": 0, "b": 0}
    assert builds.notes()[:2] == ["start a", "start a2"]


def test_a_config_of_another_group_starts_while_one_tests_its_packages(builds: Builds) -> None:
    builds.plan("a", tests=True, until=["b"])  # would never end before it
    builds.plan("b", tests=True, until=["c"])
    builds.plan("c")
    ends = builds.build(["a"], ["b"], ["c"], places=1)
    assert builds.codes(ends) == {"a": 0, "b": 0, "c": 0}
    notes = builds.notes()
    assert notes.index("start b") < notes.index("end a")
    assert notes.index("start c") < notes.index("end b")


def test_a_place_of_tests_goes_to_one_config(builds: Builds) -> None:
    """Several looks at the record of the same tests start no further config."""
    builds.plan("a", tests=True, until=["go"])
    builds.plan("b", until=["go"])
    builds.plan("c")
    looked = after(lambda: (builds.output / "b.pool").exists(), lambda: time.sleep(2.5))
    ended = after(lambda: not looked.is_alive(), (builds.output / "go").touch)
    builds.build(["a"], ["b"], ["c"], places=1)
    ended.join()
    assert builds.notes()[:2] == ["start a", "start b"]
    assert builds.notes().index("start c") > builds.notes().index("end b")


@pytest.mark.parametrize("own", [True, False], ids=["", "of another run"])
def test_a_config_has_only_tests_left_if_the_record_is_of_its_run(own: bool, tmp_path: Path) -> None:
    """Until a process has planned, its folder has the record of the run before."""
    this = psutil.Process()
    record.write(
        tmp_path,
        record.RunRecord(
            config="a", status=record.RunStatus.BUILDING, only_tests_left=True, pid=this.pid,
            process_began=this.create_time(), host=socket.gethostname(),
        ),
    )  # fmt: skip
    member = SimpleNamespace(state=tmp_path)
    running = cast(Any, SimpleNamespace(member=member, pid=this.pid if own else this.pid + 1))
    assert side_by_side._has_only_tests_left(running) is own
    assert (side_by_side._work_of(running) == "building") is own


def test_jobs_are_shared_out_while_configs_are_built(builds: Builds, monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[bool] = []
    monkeypatch.setattr(JobPool, "balance", lambda _: shared.append(True))
    builds.plan("a")
    builds.plan("b")
    builds.build(["a"], ["b"])
    assert shared


@pytest.mark.parametrize("is_one_group", [True, False])
@pytest.mark.parametrize("names", [("a", "fixed"), ("fixed", "a")])
def test_a_config_with_a_fixed_share_of_the_jobs_waits_for_the_end(
    builds: Builds, names: tuple[str, str], is_one_group: bool
) -> None:
    first, second = names
    builds.plan(first, tests=True, until=["go"])
    builds.plan(second)
    looked = after(lambda: (builds.output / first / "state.json").exists(), lambda: time.sleep(2.0))
    ended = after(lambda: not looked.is_alive(), (builds.output / "go").touch)
    groups = [[first, second]] if is_one_group else [[first], [second]]
    ends = builds.build(*groups, places=1)
    ended.join()
    assert builds.codes(ends) == {first: 0, second: 0}
    assert builds.notes() == [f"{what} {name}" for name in names for what in ("start", "end")]


def test_a_config_whose_tree_is_removed_in_a_moment_is_waited_for(builds: Builds) -> None:
    builds.plan("a", tests=True)
    builds.plan("a2")
    builds.build(["a", "a2"], places=1, starts_early=False)
    assert builds.notes() == ["start a", "end a", "start a2", "end a2"]


def test_jobs_are_shared_out(builds: Builds) -> None:
    builds.plan("a", until=["fixed"])
    builds.plan("fixed")
    builds.build(["a"], ["fixed"], jobs=7)
    pools = {name: json.loads((builds.output / f"{name}.pool").read_text()) for name in ("a", "fixed")}
    assert pools["a"] == {**pools["fixed"], "name": "a", "is_fixed": False}
    assert (pools["a"]["share"], pools["a"]["most"], pools["a"]["heavy_jobs"]) == (3, 7, 1)


@pytest.mark.parametrize("moment", ["building", "writing"])
def test_a_killed_process_is_a_failure_of_its_config_alone(
    moment: str, builds: Builds, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also while it writes its answer."""
    builds.plan("a", killed=moment)
    builds.plan("b")
    ends = builds.build(["a"], ["b"])
    assert builds.codes(ends) == {"a": 8, "b": 0}
    assert "error: a: its process ended with code 137" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_reaches_each_config_and_starts_no_other(builds: Builds, number: signal.Signals) -> None:
    for name in ("a", "b"):
        builds.plan(name, until=["never"])
    started = after(
        lambda: all((builds.output / f"{name}.pool").exists() for name in ("a", "b")),
        lambda: os.kill(os.getpid(), number),
    )
    with stop_on_signals():
        ends = builds.build(["a", "a2"], ["b"], ["c"])
    started.join()
    assert builds.codes(ends) == {"a": 130, "a2": None, "b": 130, "c": None}
    assert sorted(builds.notes()[2:]) == [f"{number.name} a", f"{number.name} b"]


def test_a_config_that_cannot_be_interrupted_yet_is_ended(builds: Builds) -> None:
    builds.plan("a", deaf=True, until=["never"])
    builds.plan("b", until=["never"])
    started = after(
        lambda: all((builds.output / f"{name}.pool").exists() for name in ("a", "b")),
        lambda: os.kill(os.getpid(), signal.SIGINT),
    )
    ends = builds.build(["a"], ["b"])
    started.join()
    assert builds.codes(ends) == {"a": 130, "b": 130}


def test_after_an_error_no_process_of_a_config_is_left(
    builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a second Ctrl-C: the files of their pool are removed below them."""
    builds.plan("a", until=["never"])
    started: list[subprocess.Popen[bytes]] = []

    def fail(running_builds: side_by_side._Builds) -> None:
        started.extend(running.guard for running in running_builds._running.values())
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(side_by_side._Builds, "_look", fail)
    with pytest.raises(OSError, match="Input"):
        builds.build(["a"])
    (guard,) = started
    assert guard.returncode is not None
    for stream in (guard.stdout, guard.stderr):
        if stream is not None:
            stream.close()


def test_an_interrupted_config_starts_no_other_but_lets_those_that_run_end(builds: Builds) -> None:
    builds.plan("a", code=130)
    builds.plan("b", until=["go"])
    shown = after(lambda: "a: x exit code" in builds.shown.getvalue(), (builds.output / "go").touch)
    ends = builds.build(["a", "a2"], ["b", "b2"])
    shown.join()
    assert builds.codes(ends) == {"a": 130, "a2": None, "b": 0, "b2": None}


def test_a_killed_command_leaves_no_process(builds: Builds) -> None:
    for name in ("a", "b"):
        builds.plan(name, until=["never"], deaf=name == "a")
    process = os.fork()
    if process == 0:  # the command
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        builds.build(["a"], ["b"])
        os._exit(0)
    assert wait_for(lambda: all((builds.output / f"{name}.pool").exists() for name in ("a", "b")))
    children = psutil.Process(process).children(recursive=True)
    assert len(children) == 4, "a guard and a process for each"
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    assert not psutil.wait_procs(children, timeout=10.0)[1]


def test_a_request_arrives_as_it_was_sent(tmp_path: Path) -> None:
    run = dataclasses.replace(
        fill(RunChoices, defaults()), engine=Engine.HOST, deadline=parse_deadline("5h"), torch_source=tmp_path,
        pythons=("3.11", "3.12"), memory=10**10, pyg=PygMode.NONE, environments=EnvironmentChoice.KEPT,
    )  # fmt: skip
    options = fill(BuildOptions, defaults())
    options = dataclasses.replace(
        options, run=run, provider=ProviderName.WHEEL, root=tmp_path, configs=("a",)
    )
    pool = PoolMember(folder=tmp_path, name="a", share=2, is_fixed=False, most=5, heavy_jobs=0)
    request = MemberRequest(
        config="a", root=tmp_path, output=tmp_path, earlier=("b",), build_options=options, log_folder=tmp_path,
        shows_phases=False, pool=pool,
    )  # fmt: skip
    environ = with_request({"HOME": "/home"}, request)
    assert take_request(environ) == request
    assert environ == {"HOME": "/home"}


def test_a_process_builds_with_all_that_it_was_asked(
    tmp_path: Path, repository: Path, invocation: Invocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Options] = []

    def build_config(options: Options, *_: object) -> Result:
        built.append(options)
        return Result(lines=["", "built"])

    monkeypatch.setattr(member, "build_config", build_config)
    run = dataclasses.replace(fill(RunChoices, defaults()), pythons=("3.12",), memory=10**10)
    options = dataclasses.replace(fill(BuildOptions, defaults()), run=run)
    pool = PoolMember(folder=tmp_path, name="a", share=2, is_fixed=False, most=5, heavy_jobs=0)
    request = MemberRequest(
        config="linux_64_cuda130", root=repository, output=tmp_path, earlier=("linux_64_cpu",), build_options=options,
        log_folder=tmp_path, shows_phases=False, pool=pool,
    )  # fmt: skip
    lines: list[str] = []
    member._build(request, invocation, lines)
    (made,) = built
    assert (made.config.name, made.earlier) == ("linux_64_cuda130", ("linux_64_cpu",))
    assert (made.root, made.output) == (repository, tmp_path)
    assert (made.pythons, made.memory) == (("3.12",), 10**10)
    assert made.pool == pool, "else it takes all jobs of the machine"
    assert lines == ["built"]


MEMBER = """
import sys
sys.path[:0] = {path!r}
from command_line import member
from groundwork.errors import OutOfSpaceError
from groundwork.result import Result
def build(*_):
    {body}
member._build = build
member.main()
"""


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("return Result(lines=[])", 0),
        ("return Result(lines=[], exit_code=7)", 7),
        ("import os; os.write(1, b'a line of a library\\n'); return Result(lines=[])", 0),
        ("raise OutOfSpaceError('full', 'free some')", 12),
        ("raise KeyboardInterrupt", 130),
        ("1 / 0", os.EX_SOFTWARE),
        # a second signal, while the error is printed
        ("from command_line import run_command; run_command._report = build; raise KeyboardInterrupt", 130),
    ],
)
def test_a_process_answers_and_ends_with_the_exit_code_of_its_config(
    body: str, code: int, builds: Builds
) -> None:
    environ = with_request(os.environ, builds.member("a").request)
    program = MEMBER.format(path=sys.path, body=body)
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, check=False)
    started, ended = map(read_answer, done.stdout.splitlines())
    assert isinstance(started, MemberStarted)
    assert isinstance(ended, MemberEnded)
    assert (ended.exit_code, done.returncode) == (code, code), done.stderr
    assert (ended.document is not None) == ("_report" not in body), "of the result, or of the error"


ON_TERMINAL = """
import json, sys, time
from pathlib import Path
from rich.console import Console
sys.path[:0] = {path!r}
import test_cli_side_by_side as tests
from command_line import side_by_side
from command_line.run_command import Invocation
side_by_side.member_command = lambda: [sys.executable, "-c", tests.STUB]
builds = tests.Builds(Path({output!r}), Invocation(log_folder=Path({output!r})))
groups = [["linux_64_cpu", "linux_64_cpu_generic"], ["linux_64_cuda129"], ["linux_64_cuda130"]]
members = {{name: builds.member(name) for group in groups for name in group}}
order = side_by_side.Arrangement(groups=groups, places=3, jobs=8, heavy_jobs=0)
side_by_side.build_side_by_side(members, order, Console(soft_wrap=True), builds.invocation)
"""


def test_a_terminal_of_80_columns_has_one_table_of_configs(tmp_path: Path) -> None:
    builds = Builds(tmp_path, Invocation(log_folder=tmp_path))
    builds.plan("linux_64_cpu", until=["go"])
    builds.plan("linux_64_cpu_generic")
    builds.plan("linux_64_cuda129", code=5)
    builds.plan("linux_64_cuda130", until=["go"])
    program = ON_TERMINAL.format(path=sys.path, output=str(tmp_path))
    # the table is drawn every second
    seen_by_then = threading.Timer(4.0, (tmp_path / "go").touch)
    ended = after((tmp_path / "linux_64_cuda129.ended").exists, seen_by_then.start)
    seen = run_on_terminal([sys.executable, "-c", program], columns=80, environ=terminal_environ())
    ended.join()
    assert seen.exit_code == 0, seen.text
    tables = [screen for _, screen in seen.moments if "config " in screen and "exit code 5" in screen]
    rows = [line.rstrip() for table in tables for line in table.splitlines()]
    assert any(row.startswith("linux_64_cpu_generic") and row.endswith("waiting") for row in rows)
    assert any("of 8 jobs in use, memory" in row for row in rows)
    assert all(len(line) <= 80 for line in seen.lines)
