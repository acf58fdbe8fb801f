"""Lines that are folded for a terminal, and commands in several lines that a shell reads as one."""

from __future__ import annotations

import io
import os
import shlex
import subprocess

import pytest

from groundwork.text import fold, fold_command, folded

PROSE = "needs about 360 MB of disk, and 500 MB of memory for each of the jobs"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_prose_is_broken_at_words_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = folded(f"short\n{PROSE}", Terminal()).split("\n")
    assert lines[0] == "short"
    assert max(map(len, lines)) <= 40
    assert " ".join(line.strip() for line in lines[1:]) == PROSE
    assert folded(PROSE, io.StringIO()) == PROSE


@pytest.mark.parametrize(
    "line",
    [
        "  python3 build-locally.py linux_64_cuda130 --python 3.12 --output /elsewhere",
        "pytorch-2.13.0-cpu_mkl_py312_hf3c2cc2_102  build  because of something",
        "log:/a/single/word/of/more/than/forty/columns/that/no/blank/divides.log",
    ],
)
def test_what_is_copied_stays_whole(line: str) -> None:
    assert fold(line, 40) == [line]


@pytest.mark.parametrize(
    "words",
    [
        ["printf", "%s|", "--from", "linux_64_cpu-rehearsal", "-o", "/var/tmp/" + "x" * 40],
        ["printf", "%s|", "a folder with blanks " * 4, "it's", "$HOME", "y" * 100],
        ["printf", "%s|", "short"],
    ],
)
def test_a_command_in_several_lines_is_one_command(words: list[str]) -> None:
    lines = fold_command(shlex.join(words))
    assert all(len(line) <= 80 or len(line.split("  ")[-1]) > 74 for line in lines)
    done = subprocess.run(["sh", "-c", "\n".join(lines)], capture_output=True, check=True, env=os.environ)
    assert done.stdout.decode() == "".join(f"{word}|" for word in words[2:])


def test_a_command_gets_a_line_of_its_own() -> None:
    command = "python3 build-locally.py linux_64_cuda130_wheel --arch-list 12.0"
    lines = fold(f"hint: set CONDA_CHANNEL_ALIAS to a mirror, or run: {command}", 40)
    assert lines == ["hint: set CONDA_CHANNEL_ALIAS to a", "  mirror, or run:", f"  {command}"]
