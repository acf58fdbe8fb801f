"""Where runs of the tiny megabuild stand: while they go on, after kill -9, a deadline, runs with nothing to do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny import Tiny, driver, wait_for

from groundwork.errors import DeadlineError
from groundwork.interrupts import Deadline
from megabuild.engine.supervisor import strays
from megabuild.status import record as state_file
from megabuild.status.reading import read_run_state
from megabuild.status.record import RunRecord
from megabuild.status.show import run_lines

NOBODY = 65534
#: Ending compilers takes two seconds of grace at most, and three more where they do not follow; twice that when busy.
PROMPT_SECONDS = 10.0


def state_of(tiny: Tiny) -> RunRecord:
    state = state_file.read(tiny.options().state)
    assert state is not None
    return state


def status(tiny: Tiny, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Call the command in a process of its own."""
    command = [sys.executable, "-m", "megabuild", "status", *arguments, "-o", str(tiny.output)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def test_a_run_that_did_its_work_says_so_and_one_with_nothing_to_do_erases_nothing(tiny: Tiny) -> None:
    tiny.run()
    state, folder = state_of(tiny), tiny.options().state
    assert (state.status, state.exit_code, state.activities) == ("done", 0, [])
    assert set(state.packages.values()) == {"published"}
    kept = {name: (folder / name).read_bytes() for name in ("run.json", state_file.NAME)}
    log = (folder / "logs" / "latest.log").resolve()
    assert {row.status for row in tiny.run().packages} == {"skipped"}
    assert {name: (folder / name).read_bytes() for name in kept} == kept
    assert (folder / "logs" / "latest.log").resolve() == log


def test_a_run_is_seen_from_outside_and_after_kill_9_where_it_died(tiny: Tiny) -> None:

    def is_compiling() -> bool:
        record = read_run_state(tiny.options().state).record
        return record is not None and any(row.done >= 1 for row in record.activities)

    with driver(tiny, TINY_SECONDS="3") as process:
        assert wait_for(is_compiling)
        found = read_run_state(tiny.options().state)
        assert found.standing == "running"
        assert found.record is not None
        assert found.record.pid == process.pid
        assert found.record.memory > 20_000_000, "the driver and its worker"
        during = status(tiny)
        process.kill()
        process.wait()
    assert during.returncode == 0, during.stderr
    assert f"process {process.pid}" in during.stdout
    found = read_run_state(tiny.options().state)
    assert found.standing == "died"
    said = status(tiny)
    assert said.returncode == 0
    assert "died at " in said.stdout
    assert re.search(r"\d \w+ 6 \(tiny-build: compile", said.stdout)
    assert "same command" in said.stdout
    assert status(tiny, "--follow").returncode == 8
    tiny.run()
    assert state_of(tiny).status == "done"


def test_a_run_killed_after_its_last_package_is_not_called_dead_for_ever(tiny: Tiny) -> None:
    tiny.run()
    folder = tiny.options().state
    document = json.loads((folder / state_file.NAME).read_text())
    (folder / state_file.NAME).write_text(json.dumps({**document, "status": "building", "pid": 2**30}))
    kept = (folder / "run.json").read_bytes()
    assert read_run_state(folder).standing == "died"
    tiny.run()
    assert read_run_state(folder).standing == "ended"
    assert (folder / "run.json").read_bytes() == kept


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look as another user")
def test_another_user_sees_it_and_writes_nothing(tiny: Tiny) -> None:
    tiny.run()
    before = sorted(path.name for path in tiny.options().state.iterdir())
    pid = os.fork()
    if not pid:
        os.chdir(tiny.options().state)  # the folders above it are pytest's, for nobody else to enter
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        lines = run_lines(read_run_state(Path()), time.time())
        os._exit(0 if "done after" in lines[0] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert sorted(path.name for path in tiny.options().state.iterdir()) == before


def run_until_deadline(tiny: Tiny, seconds: float) -> DeadlineError:
    """Run until a deadline has come; check that the run ends soon."""
    end = time.monotonic() + seconds
    with pytest.raises(DeadlineError) as raised:
        tiny.run(deadline=Deadline(text="1h", stop_at=end))
    assert time.monotonic() < end + PROMPT_SECONDS
    assert not strays(tiny.options().state)
    state = state_of(tiny)
    assert (state.status, state.exit_code) == ("interrupted", 28)
    return raised.value


def test_a_run_ends_at_its_deadline_and_the_next_run_goes_on_from_there(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tiny.options().state / "tree" / "build"
    monkeypatch.setenv("TINY_SECONDS", "1")
    error = run_until_deadline(tiny, 6.0)
    assert error.message.startswith("deadline 1h reached ")
    assert "same command" in error.remedy
    objects = {path.name: path.stat().st_mtime_ns for path in tree.glob("*.o")}
    monkeypatch.setenv("TINY_SECONDS", "0")
    assert tiny.run().ok
    assert {name: (tree / name).stat().st_mtime_ns for name in objects} == objects, "none was compiled again"
    if objects:
        assert [decided for decided, _ in tiny.decisions()] == ["resume"]


def test_a_deadline_that_has_passed_ends_a_run_before_anything_is_compiled(tiny: Tiny) -> None:
    run_until_deadline(tiny, -1.0)
    assert not list(tiny.options().state.glob("tree/build/*.o"))
