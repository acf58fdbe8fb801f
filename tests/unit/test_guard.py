"""The guard ends its command with all descendants, also if its parent is killed."""

from __future__ import annotations

import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TypeAlias

import psutil
import pytest
from tiny import wait_for

from groundwork import guard

#: The guard's process, and those below it.
Family: TypeAlias = "tuple[subprocess.Popen[str], list[psutil.Process]]"
#: A child, a grandchild in its own session, and a process that ignores SIGTERM.
FAMILY = """
import subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
subprocess.Popen(sleep, start_new_session=True)
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
subprocess.Popen([sys.executable, "-c", deaf])
time.sleep(60)
"""


@pytest.fixture
def family() -> Iterator[Family]:
    process = subprocess.Popen(
        [sys.executable, guard.__file__, sys.executable, "-c", FAMILY],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    below = psutil.Process(process.pid).children(recursive=True)
    assert len(below) == 3
    yield process, below
    process.kill()
    process.stdin.close()
    process.stdout.close()
    process.wait()


@pytest.mark.parametrize("asked", [True, False])
def test_all_processes_end_after_a_signal_or_when_standard_input_closes(family: Family, asked: bool) -> None:
    process, below = family
    assert process.stdin is not None
    process.terminate() if asked else process.stdin.close()
    assert process.wait(timeout=10) == 128 + signal.SIGTERM
    assert not [one for one in below if one.is_running()]


def test_the_engine_ends_with_a_killed_guard(family: Family) -> None:
    process, (engine, *others) = family
    process.kill()
    with suppress(psutil.NoSuchProcess):
        assert wait_for(lambda: engine.status() == psutil.STATUS_ZOMBIE, seconds=5)
    for other in others:
        if other.is_running():
            other.kill()


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 9", 9), ("kill -KILL $$", 137)])
def test_the_exit_code_is_the_command_s(script: str, code: int) -> None:
    command = [sys.executable, guard.__file__, "sh", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        assert process.wait(timeout=10) == code


@pytest.mark.skipif(shutil.which("ps") is None, reason="ps is not installed")
def test_without_proc_the_processes_come_from_ps(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    process, below = family
    here = guard._processes()
    monkeypatch.setattr("os.path.isdir", lambda path: False)
    listed = guard._processes()
    wanted = {(one.pid, one.ppid()) for one in (psutil.Process(process.pid), *below)}
    assert wanted <= {*here} & {*listed}


@pytest.mark.parametrize(("returncode", "code"), [(None, 137), (-15, 143), (-9, 137), (0, 0), (3, 3)])
def test_a_program_whose_end_was_not_seen_has_not_succeeded(returncode: int | None, code: int) -> None:
    assert guard._shell_code(returncode) == code


@pytest.mark.parametrize("error", [OSError(9, "Bad file descriptor"), ValueError("closed")], ids=repr)
def test_an_input_that_cannot_be_watched_counts_as_closed(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the program would outlive its parent."""

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(select, "select", refuse)
    assert guard._input_closed(0.0)
