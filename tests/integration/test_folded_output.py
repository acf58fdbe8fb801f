"""What people see on narrow terminals: no word is broken, no prose is cut, and every command can be copied."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from terminal import Seen, run_on_terminal, terminal_environ

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = [sys.executable, "-m", "megabuild"]
#: Beginnings of commands in the output that these tests look at.
COMMANDS = ("python3 ", "megabuild ", "build-locally.py ", "sudo ", "su -c ")
LONG = "a-folder-with-a-name/" * 6


def environ(**more: str) -> dict[str, str]:
    return terminal_environ(PYTHONPATH=str(ROOT / "scripts"), **more)


def look(words: list[str], columns: int, **more: str) -> Seen:
    return run_on_terminal([*PROGRAM, *words], columns=columns, environ=environ(**more), cwd=ROOT)


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
    piped = subprocess.run(
        [*PROGRAM, *words], env=environ(), cwd=ROOT, text=True, capture_output=True, check=False
    )
    assert seen.exit_code == piped.returncode
    assert bare_words(seen.text if max(map(len, seen.written)) <= columns else "\n".join(seen.written)) == (
        bare_words(piped.stdout + piped.stderr)
    )


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


def test_no_color_is_honoured() -> None:
    seen = look(["build", "linux_64_cpu", "--plan", "--pyg", "none"], 80, NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*m", seen.raw)
