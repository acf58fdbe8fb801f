"""Text for people: sizes, durations, signs; lines folded for a terminal, commands that a shell reads as one."""

from __future__ import annotations

import io
import os
import shlex
import subprocess

import pytest

from groundwork.text import duration, fold, fold_command, folded, printable, size

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


@pytest.mark.parametrize(
    ("octets", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (99_949, "99.9 kB"), (99_951, "100 kB"), (999_600, "1.0 MB"),
     (34_512_000, "34.5 MB"), (1_234_000_000, "1.2 GB"), (5_000_000_000_000, "5000.0 GB")],
)  # fmt: skip
def test_sizes_have_one_useful_digit(octets: float, text: str) -> None:
    assert size(octets) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.4, "59 s"), (59.6, "1:00 min"), (187, "3:07 min"), (7500, "2:05 h")]
)
def test_durations_have_the_unit_they_need(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_signs_are_ascii_on_an_ascii_stream() -> None:
    ascii_stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert printable("✓ a\n✗ b…", ascii_stream) == "+ a\nx b~"
    assert printable("✓", io.TextIOWrapper(io.BytesIO(), encoding="UTF-8")) == "✓"
