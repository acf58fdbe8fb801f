"""What people see on terminals: no word is broken, every command can be copied, and the seconds of a wait move."""

from __future__ import annotations

import fcntl
import functools
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from import_path import packages_path
from terminal import Seen, run_on_terminal, terminal_environ

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = [sys.executable, "-m", "megabuild"]
#: Beginnings of commands in the output that these tests look at.
COMMANDS = ("python3 ", "megabuild ", "build-locally.py ", "sudo ", "su -c ")
LONG = "a-folder-with-a-name/" * 6


def environ(**more: str) -> dict[str, str]:
    return terminal_environ(PYTHONPATH=packages_path(ROOT), **more)


def look(words: list[str], columns: int, **more: str) -> Seen:
    return run_on_terminal([*PROGRAM, *words], columns=columns, environ=environ(**more), cwd=ROOT)


@functools.cache
def piped(*words: str) -> subprocess.CompletedProcess[str]:
    """What a command writes off a terminal."""
    return subprocess.run(
        [*PROGRAM, *words], env=environ(), cwd=ROOT, text=True, capture_output=True, check=False
    )


def check_folds(seen: Seen, columns: int) -> None:
    """Only commands and single words may be wider than the terminal."""
    for line in seen.written:
        text = line.strip()
        assert len(line) <= columns or " " not in text or text.startswith(COMMANDS), line


def bare_words(text: str) -> list[str]:
    """Return the words without the punctuation that a command's own line replaces."""
    return re.sub(r"[(),;]", "", text).split()


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize(
    "words",
    [
        ["build", "--help"],
        ["slim", "--help"],
        ["nonsense"],
        ["env", "create", "./env", "pytorch", "--from", f"none-{'x' * 40}"],
        ["status", "-o", LONG, "linux_64_cpu"],
        ["verify", LONG],
        ["build", "linux_64_cpx"],
    ],
    ids=" ".join,
)
def test_narrow_terminals_show_whole_words(words: list[str], columns: int) -> None:
    seen = look(words, columns)
    check_folds(seen, columns)
    whole = piped(*words)
    assert seen.exit_code == whole.returncode
    assert bare_words(seen.text if max(map(len, seen.written)) <= columns else "\n".join(seen.written)) == (
        bare_words(whole.stdout + whole.stderr)
    )


@pytest.mark.parametrize(
    "words", [["audit", "--offline", "--package", "pyg-lib"], ["sizes", sys.prefix]], ids=" ".join
)
def test_tables_and_their_remarks_fit_a_narrow_terminal(words: list[str]) -> None:
    seen = look(words, 60)
    assert len(seen.lines) > 20, seen.text
    check_folds(seen, 60)


def test_a_plan_and_its_command_fit_a_narrow_terminal() -> None:
    seen = look(["build", "linux_64_cpu", "--plan", "--pyg", "none"], 60)
    check_folds(seen, 60)
    assert any(line.startswith("takes about ") for line in seen.lines)


def test_a_dumb_terminal_gets_folded_lines_without_colours_or_moves() -> None:
    seen = look(["build", "linux_64_cpx"], 200, TERM="dumb", COLUMNS="60")
    check_folds(seen, 60)
    assert "\x1b" not in seen.raw
    assert len(seen.written) > 2
    wide = look(["build", "linux_64_cpx"], 200, TERM="dumb")
    check_folds(wide, 80)


def test_the_seconds_move_while_a_command_waits_for_a_lock(tmp_path: Path) -> None:
    lock = tmp_path / "in-use" / "cache.lock"
    lock.parent.mkdir()
    file = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(file, fcntl.LOCK_EX)  # as `megabuild clean --apply` has it
    release = threading.Timer(6.0, lambda: os.close(file))
    release.start()
    words = ["build", "linux_64_cpu", "--plan", "--pyg", "none"]
    seen = look(words, 80, MEGABUILD_CACHE=str(tmp_path))
    release.join()
    assert seen.exit_code == 0
    seconds = {int(text) for _, shown in seen.moments for text in re.findall(r"planning, (\d+) s", shown)}
    assert len(seconds) >= 2
    assert "planning" not in seen.text


@pytest.mark.parametrize("terminal", ["xterm-256color", "dumb"])
def test_the_seconds_move_while_the_private_environment_is_made(terminal: str) -> None:
    code = "import time; from groundwork import bootstrap\nwith bootstrap._seconds_shown(): time.sleep(2.3)"
    seen = run_on_terminal([sys.executable, "-c", code], columns=80, environ=environ(TERM=terminal))
    shown = [text.strip() for _, text in seen.moments]
    assert shown == ([] if terminal == "dumb" else ["1 s so far", "2 s so far", ""])
    assert seen.text == ""
