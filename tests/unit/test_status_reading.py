"""Where runs stand, read from their files: running, ended, died, on another machine, damaged."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pytest
from calling import call
from msgspec import structs
from small_files import write

from command_line import status
from command_line.run_command import Invocation
from groundwork.errors import BuildError, ConfigError, IntegrityError
from groundwork.result import Result
from megabuild.status import history as history_file
from megabuild.status import reading, show
from megabuild.status import record as state_file
from megabuild.status.reading import RunState, Standing, read_run_state, run_names
from megabuild.status.record import Activity, PackageState, RunRecord, RunStatus
from megabuild.status.show import clock, run_lines, status_result
from megabuild.store import published
from megabuild.store.published import PublishedPackage
from megabuild.timeline.page import make_page

COMPILING = Activity(task="pytorch", what="libtorch: compile", since=900.0, done=148, total=1614)


def a_state(**changes: object) -> RunRecord:
    state = RunRecord(
        config="linux_64_cpu", status=RunStatus.BUILDING, began=time.time() - 60, updated=time.time(),
        activities=[COMPILING],
        log="/elsewhere/logs/run.log", pid=os.getpid(), process_began=psutil.Process().create_time(),
        host=socket.gethostname(), packages={"libtorch-2.13.0-h0_0.conda": PackageState.WAITING},
    )  # fmt: skip
    return structs.replace(state, **changes)


def put(folder: Path, state: RunRecord) -> Path:
    folder.mkdir(exist_ok=True)
    state_file.write(folder, state)
    return folder


def ended_process() -> tuple[int, float]:
    with subprocess.Popen(["sleep", "60"]) as process:
        began = psutil.Process(process.pid).create_time()
        process.kill()
    return process.pid, began


def test_what_was_written_is_read(tmp_path: Path) -> None:
    state = a_state(error="a\x1bb", packages={"x.conda": PackageState.BUILT})
    assert state_file.read(put(tmp_path, state)) == state
    assert oct((tmp_path / state_file.NAME).stat().st_mode & 0o777) == "0o644", "others may look"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "damaged"),
        (b'{"format": "megabuild/run-state", "format_version": 4, "config":', "damaged"),
        (b'{"format": "megabuild/run-state", "format_version": 4}', "damaged"),
        (b'{"format": "megabuild/run-state", "format_version": 5, "config": "x"}', "another version"),
        (b'{"format": "something/else", "format_version": 4, "config": "x"}', "something/else"),
        (b"[]", "damaged"),
        (b"\xff\xfe\x00", "damaged"),
        (b"1" * (2 << 20), "damaged"),
        (b"[" * 100_000, "damaged"),
    ],
)
def test_what_is_no_state_is_refused_with_a_reason(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / state_file.NAME).write_bytes(content)
    with pytest.raises(IntegrityError, match=says):
        state_file.read(tmp_path)
    found = read_run_state(tmp_path)
    assert found.standing == "unreadable"
    result = status_result([found], time.time())
    assert says in "\n".join(result.lines)
    assert result.exit_code == IntegrityError.exit_code


@pytest.mark.parametrize("how", ["link", "broken link", "folder", "pipe"])
def test_what_is_no_file_is_not_followed_nor_waited_for(tmp_path: Path, how: str) -> None:
    path = write(tmp_path / "run" / "x").with_name(state_file.NAME)
    if how.endswith("link"):
        path.symlink_to("/etc/passwd" if how == "link" else "missing")
    elif how == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert run_names(tmp_path, []) == ["run"], "a record that cannot be read is a record"
    assert read_run_state(path.parent).standing == "unreadable"


def test_a_driver_that_was_killed_died_where_it_was(tmp_path: Path) -> None:
    pid, began = ended_process()
    found = read_run_state(put(tmp_path, a_state(pid=pid, process_began=began, log="/etc/passwd")))
    assert (found.standing, found.log) == ("died", tmp_path / "logs" / "passwd")
    lines = run_lines(found, time.time())
    assert re.search(r" 148 \w+ 1,614 \(libtorch: compile\)", lines[0])
    assert "same command" in lines[-1]
    assert status_result([found], time.time()).exit_code == 0
    assert status_result([found], time.time(), followed=True).exit_code == 8


@pytest.mark.parametrize("standing", [Standing.DIED, Standing.ENDED])
def test_a_run_that_is_over_says_which_tests_failed(
    standing: Standing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = a_state(status=RunStatus.FAILED, exit_code=8)
    run = dataclasses.replace(read_run_state(put(tmp_path, record)), standing=standing)
    monkeypatch.setattr(
        show, "read_missing_tests", lambda _: SimpleNamespace(lines=["tests failed: a.conda"])
    )
    assert any("tests failed: a.conda" in line for line in run_lines(run, time.time()))
    monkeypatch.setattr(show, "read_missing_tests", lambda _: None)
    assert any("unknown whether tests failed" in line for line in run_lines(run, time.time()))


def test_another_process_with_the_same_id_is_not_the_driver(tmp_path: Path) -> None:
    assert read_run_state(put(tmp_path, a_state(process_began=1.0))).standing == "died"


@pytest.mark.parametrize("before", [4000, -4000], ids=["long ago", "its clock is wrong"])
def test_on_another_machine_only_the_time_of_its_last_word_tells(before: int, tmp_path: Path) -> None:
    there = a_state(host="node7", pid=1)
    assert read_run_state(put(tmp_path, there)).standing == "running"
    silent = read_run_state(put(tmp_path, structs.replace(there, updated=time.time() - before)))
    assert silent.standing == "unknown"
    assert "node7" in run_lines(silent, time.time())[0]


def test_a_run_that_ended_between_two_looks_did_not_die(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, a_state(process_began=1.0))

    def is_running(*_: object) -> bool:
        put(tmp_path, a_state(status=RunStatus.DONE, exit_code=0))
        return False

    monkeypatch.setattr(reading, "is_running", is_running)
    assert read_run_state(tmp_path).standing == "ended"


def test_names_mean_a_config_with_its_rehearsals(tmp_path: Path) -> None:
    for name in ("linux_64_cpu", "linux_64_cpu-rehearsal", "linux_64_cpu_debian"):
        put(tmp_path / name, a_state())
    (tmp_path / "packages").mkdir()
    assert run_names(tmp_path, []) == ["linux_64_cpu", "linux_64_cpu-rehearsal", "linux_64_cpu_debian"]
    assert run_names(tmp_path, ["linux_64_cpu"]) == ["linux_64_cpu", "linux_64_cpu-rehearsal"]
    assert run_names(tmp_path, ["*debian", "linux_64_cpu_debian"]) == ["linux_64_cpu_debian"]
    with pytest.raises(ConfigError, match=r"^osx: "):
        run_names(tmp_path, ["osx"])
    assert run_names(tmp_path / "none", []) == []
    assert run_names(write(tmp_path / "file"), []) == []


@pytest.mark.parametrize("kept", [state_file, history_file], ids=["record", "history"])
def test_a_full_disk_ends_no_run_for_its_record(
    kept: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_nothing(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(kept.files, "write", write_nothing)
    kept.write(tmp_path, a_state())


def test_every_user_can_read_records_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        state_file.write(tmp_path, a_state())
        history_file.write(tmp_path, history_file.History(began=1.0, cores=1, memory=1))
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys((state_file.NAME, history_file.NAME), 0o644)


def test_the_time_left_passes_after_the_last_update() -> None:
    record = a_state(began=0.0, updated=100.0, seconds_left=120.0)
    assert show.run_line(record, 130.0).startswith("building, 2:10 min so far, 1:30 min left, ends ")


@pytest.mark.parametrize(
    ("done", "elapsed", "expected", "left"),
    [
        (80, 60, 0.0, "14:00 min"),  # no table: by the rate of 16 seconds for one in 50
        (80, 60, 4500.0, "58:00 min"),
        (160, 420, 4500.0, "56:00 min"),
        (300, 1200, 4500.0, "1:00 h"),  # from a quarter of the steps on by the rate alone
        (600, 1200, 4500.0, "20:00 min"),
        (80, 9000, 4500.0, "9:20 h"),  # longer than the table says
    ],
)
def test_the_time_left_of_a_compile_is_the_table_s_at_first(
    done: int, elapsed: float, expected: float, left: str
) -> None:
    compiling = structs.replace(COMPILING, since=1000.0, done=done, total=1200, unit="", expected=expected)
    line = show.activity_line(compiling, 1000.0 + elapsed, rate=True)
    assert line.endswith(f", {left} left")


def test_packages_that_were_there_or_are_published_are_counted() -> None:
    states = dict(enumerate(PackageState))
    record = a_state(packages={str(number): state for number, state in states.items()})
    assert f"2 of {len(states)} packages published" in show.figures(record)


def test_the_first_run_that_failed_gives_the_exit_code_of_those_followed(tmp_path: Path) -> None:
    runs = []
    for code in (0, 7, 9):
        state = a_state(status=RunStatus.FAILED if code else RunStatus.DONE, exit_code=code)
        runs.append(read_run_state(put(tmp_path / str(code), state)))
    assert status_result(runs, time.time(), followed=True).exit_code == 7


@pytest.mark.parametrize("end", [RunStatus.FAILED, RunStatus.INTERRUPTED])
def test_the_error_of_a_run_that_failed_is_shown_and_how_an_interrupted_one_resumes(
    end: RunStatus, tmp_path: Path
) -> None:
    state = a_state(status=end, error="x.cpp:1: no\x1b[2J", exit_code=1)
    text = "\n".join(run_lines(read_run_state(put(tmp_path, state)), time.time()))
    assert "\x1b" not in text, "any program may have written it"
    assert ("x.cpp:1: no" in text, "run the same command again" in text) == (
        end is RunStatus.FAILED, end is RunStatus.INTERRUPTED
    )  # fmt: skip


def test_the_progress_of_a_run_is_that_of_its_compile() -> None:
    testing = Activity(task="test", what="testing libtorch", since=900.0)
    assert show.progress_of(a_state(activities=[testing, COMPILING])) == "at 148 of 1,614 (libtorch: compile)"
    assert show.progress_of(a_state(activities=[testing])) == "at testing libtorch"


def test_tests_that_are_unknown_are_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = read_run_state(put(tmp_path, a_state()))
    monkeypatch.setattr(show, "read_missing_tests", lambda _: None)
    document: Any = show._document(run)
    assert (document["untested"], document["failed_tests"]) == (None, None)


def test_a_document_has_the_state_and_what_became_of_it(tmp_path: Path) -> None:
    result = status_result(
        [read_run_state(put(tmp_path, a_state(status=RunStatus.FAILED, exit_code=8)))], time.time()
    )
    document = json.loads(json.dumps(result.to_json()))
    (run,) = document["runs"]
    assert document["format_version"] == 5
    assert (run["standing"], run["state"]["exit_code"]) == ("ended", 8)
    assert "exit code 8" in result.lines[0]


@pytest.mark.parametrize(
    ("standing", "exit_code", "of_status", "of_follow"),
    [
        (Standing.ENDED, 0, 0, 0),
        (Standing.ENDED, 12, 0, 12),
        (Standing.RUNNING, None, 0, 0),
        (Standing.DIED, None, 0, BuildError.exit_code),
        (Standing.UNKNOWN, None, 0, BuildError.exit_code),
        (Standing.UNREADABLE, None, IntegrityError.exit_code, IntegrityError.exit_code),
    ],
)
def test_status_succeeds_if_it_can_read_and_follow_if_the_run_did(
    tmp_path: Path, standing: Standing, exit_code: int | None, of_status: int, of_follow: int
) -> None:
    record = None if standing is Standing.UNREADABLE else a_state(exit_code=exit_code)
    run = RunState(folder=tmp_path, standing=standing, record=record)
    assert status_result([run], time.time()).exit_code == of_status
    assert status_result([run], time.time(), followed=True).exit_code == of_follow


def test_a_followed_run_is_shown_until_it_ends(
    tmp_path: Path, invocation: Invocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[list[str]] = []
    folder = put(tmp_path / "linux_64_cpu", a_state())
    monkeypatch.setattr(status, "redraw", lambda _, rows: shown.append([row.split(":")[0] for row in rows]))
    ended = a_state(status=RunStatus.FAILED, exit_code=8)  # other threads sleep for less
    monkeypatch.setattr("time.sleep", lambda seconds: put(folder, ended) if seconds == 1 else None)
    assert call(invocation, "status", "--follow", "-o", str(tmp_path)).exit_code == 8
    assert (len(shown), shown[0][0], shown[1]) == (2, "linux_64_cpu", [])


@pytest.mark.parametrize(
    ("runs", "words", "exit_code"),
    [
        ({"a": 0, "a-rehearsal": 8}, ["a"], 0),
        ({"a": 8, "a-rehearsal": 0}, ["a"], 8),
        ({"a": None, "a-rehearsal": 8}, ["a"], 0),
        ({"a": 8, "a-rehearsal": None}, ["a"], 0),
        ({"a-2.14.1": 0, "a-rehearsal": 8}, ["a"], 8),
        ({"a": None, "b": 8, "b-rehearsal": 9}, ["a", "b"], 8),
        ({"a": None, "b": 8}, ["?"], 0),
        ({"a": None, "b": 8}, [], 0),
    ],
)
def test_the_exit_code_of_follow_is_that_of_the_runs_that_were_followed(
    runs: Mapping[str, int | None], words: list[str], exit_code: int, tmp_path: Path, invocation: Invocation,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Runs without a code are in progress, and then succeed."""
    for name, code in runs.items():
        changes = {} if code is None else {"status": RunStatus.DONE, "exit_code": code}
        put(tmp_path / name, a_state(**changes))

    def end(seconds: float) -> None:
        if seconds == 1:  # other threads sleep for less
            for name, code in runs.items():
                put(tmp_path / name, a_state(status=RunStatus.DONE, exit_code=code or 0))

    monkeypatch.setattr("time.sleep", end)
    done = call(invocation, "status", *words, "--follow", "-o", str(tmp_path))
    assert done.exit_code == exit_code, done.output


def test_no_line_of_a_run_steers_the_terminal(tmp_path: Path) -> None:
    evil = Activity(task="x", what="a\x1b[2J\u202e" * 40, since=time.time(), done=1, total=2)
    run = read_run_state(put(tmp_path, a_state(activities=[evil] * 20, seconds_left=7800.0)))
    lines = run_lines(run, time.time())
    assert len(lines) < 15
    assert not {"\x1b", "\u202e"} & set("".join(lines))
    assert [line.count(" left") for line in lines[1:4]] == [1, 0, 0], "the run's own estimate"
    assert "2:10 h left" in lines[1]
    run = read_run_state(put(tmp_path, a_state(activities=[COMPILING])))
    assert [line.count(" left") for line in run_lines(run, time.time())[1:3]] == [0, 1], (
        "at the row's own rate"
    )


@pytest.mark.parametrize("point", [1e300, -1e18, float("1e20")])
def test_a_time_that_no_clock_has_is_no_fault(point: float) -> None:
    assert clock(point, time.time()) == "?"


def test_the_lines_of_an_error_stay_lines_that_can_be_copied(tmp_path: Path) -> None:
    command = f"/a/{'very-long/' * 9}failed-again"
    error = f"staging: x.cpp:8: error: #error\n    8 | #error on purpose\n      |  ^~~~~\nto repeat it:\n  {command}"
    ended = a_state(status=RunStatus.FAILED, exit_code=8, error=f"{error}\nlog: /elsewhere/logs/run.log")
    lines = run_lines(read_run_state(put(tmp_path, ended)), time.time())
    assert [line[2:] for line in lines[1:-1] if line.startswith("  ")][:5] == error.split("\n")
    assert sum("run.log" in line for line in lines) == 1


UNTESTED = "libtorch-2.13.0-cpu_h2_0.conda"
AWAITED = "pytorch-tests-2.13.0-cpu_py312_h5_0.conda"
#: A published package, before its facts on tests.
PACKAGE = PublishedPackage(path="", size=1, sha256="", fingerprint="")


def put_packages(output: Path, name: str, packages: Mapping[str, PublishedPackage]) -> Path:
    """Write the records of a config's published packages, by file name without .conda; return their file."""
    records: dict[str, PublishedPackage] = {}
    for package, record in packages.items():
        records[f"{package}.conda"] = dataclasses.replace(record, path=f"linux-64/{package}.conda")
    path = output / "packages" / name / published.RECORDS
    path.parent.mkdir(parents=True)
    path.write_bytes(msgspec.json.encode(records))
    return path


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """The folder of an ended run that planned libtorch."""
    packages = {UNTESTED: PackageState.PUBLISHED}
    return put(tmp_path / "linux_64_cpu", a_state(status=RunStatus.DONE, exit_code=0, packages=packages))


def test_packages_whose_tests_failed_or_never_ran_are_named(ended: Path) -> None:
    untested = dataclasses.replace(PACKAGE, is_tested=False)
    packages = {
        "libtorch-2.13.0-cpu_h2_0": untested,
        "libtorch-2.13.0-cpu_h1_0": untested,
        "pytorch-2.13.0-cpu_py312_h3_0": dataclasses.replace(PACKAGE, awaits=AWAITED),
        "pytorch-2.13.0-cpu_py313_h3_0": PACKAGE,
    }
    put_packages(ended.parent, ended.name, packages)
    run = read_run_state(ended)
    result = status_result([run], time.time())
    own_tests = f"  ! PyTorch's own tests failed or never ran: {AWAITED.removesuffix('.conda')}"
    never = f"  ! never tested: {UNTESTED.removesuffix('.conda')}"  # without the earlier build of libtorch
    assert result.lines[1:] == ["  1 of 1 package published", own_tests, never, result.lines[-1]]
    document = shown(result)
    assert (document["untested"], document["failed_tests"]) == ([UNTESTED], [AWAITED])
    assert never.strip() in make_page([run], time.time())


def shown(result: Result) -> dict[str, Any]:
    """Return the document of the only run."""
    document: Any = result.document
    (run,) = document["runs"]
    assert isinstance(run, dict)
    return run


def test_a_run_in_progress_may_still_test_its_packages(tmp_path: Path) -> None:
    folder = put(tmp_path / "linux_64_cpu", a_state())
    pytorch = dataclasses.replace(PACKAGE, awaits=AWAITED)
    put_packages(tmp_path, folder.name, {"pytorch-2.13.0-cpu_py312_h3_0": pytorch})
    result = status_result([read_run_state(folder)], time.time())
    assert "own tests" not in "\n".join(result.lines)
    assert shown(result)["failed_tests"] == [AWAITED]


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{", b'{"a": "\xff"}', b"[" * 100_000])
def test_records_of_packages_that_cannot_be_read_are_told(content: bytes | None, ended: Path) -> None:
    """A folder in place of the file: permissions do not stop root. Damaged records are no empty ones."""
    records = put_packages(ended.parent, ended.name, {})
    records.unlink()
    if content is None:
        records.mkdir()
    else:
        records.write_bytes(content)
    result = status_result([read_run_state(ended)], time.time())
    assert (result.exit_code, "records of packages cannot be read" in result.lines[2]) == (0, True)
    assert shown(result)["untested"] is None


def test_a_record_that_cannot_be_read_is_told_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "run", a_state())

    def refuse(_: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(state_file, "read", refuse)
    read = read_run_state(tmp_path / "run")
    assert (read.standing, read.record) == (Standing.UNREADABLE, None)
    result = status_result([read], 1.0)
    assert "state.json: Permission denied" in result.lines[-1]
    assert shown(result)["untested"] is None


@pytest.mark.parametrize("content", ["", "{", "[" * 100_000, b'{"config": "\xff"}', b"\xff"])
def test_a_record_that_is_damaged_is_told_with_its_remedy(content: str | bytes, tmp_path: Path) -> None:
    write(tmp_path / "run" / state_file.NAME, content)
    read = read_run_state(tmp_path / "run")
    assert read.standing is Standing.UNREADABLE
    assert "state.json: damaged, or of another version of megabuild: " in read.trouble
    assert read.trouble.endswith("; run the build again to replace it")


@pytest.mark.parametrize("place", ["missing", "missing/folder", "file/below"])
def test_a_folder_without_runs_has_no_record(place: str, tmp_path: Path) -> None:
    write(tmp_path / "file", "x")
    assert state_file.read(tmp_path / place) is None
