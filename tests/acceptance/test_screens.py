"""Screens of 80 and 60 columns, a dumb terminal, and no terminal: folded at words, commands whole, nothing drawn."""

from __future__ import annotations

import re

import pytest
from product import Place
from terminal import Seen, run_on_terminal

#: How lines begin that a user copies.
_COMMANDS = (
    "python3 ",
    "megabuild ",
    "build-locally.py ",
    "install-pyg ",
    "scripts/",
    "sudo ",
    "uv ",
    "pip ",
)
_LONG = "a-folder-with-a-name/" * 6


def look(place: Place, command: str, columns: int, **variables: str) -> Seen:
    environment = place.environment(**{"TERM": "xterm-256color", **variables})
    return run_on_terminal(["bash", "-c", command], columns=columns, environ=environment, cwd=place.folder)


def broken_lines(seen: Seen, columns: int) -> list[str]:
    """Return the lines that the terminal breaks in the middle: prose that is wider than the terminal."""
    found: list[str] = []
    for line in seen.written:
        text = line.strip()
        is_one_word = " " not in text
        if len(line) > columns and not is_one_word and not text.startswith(_COMMANDS):
            found.append(line)
    return found


@pytest.mark.parametrize("columns", [80, 60])
@pytest.mark.parametrize(
    "command",
    [
        "python3 build-locally.py --help",
        "python3 scripts/megabuild --help",
        "python3 scripts/megabuild slim --help",
        "python3 scripts/megabuild env create --help",
        "python3 build-locally.py linux_64_cpx",
        "python3 build-locally.py linux_64_cuda130 --plan --pyg none",
        "python3 build-locally.py linux_64_cpu --rehearse --plan",
        "python3 scripts/megabuild audit --bump 2.14.1",
        f"python3 scripts/megabuild verify {_LONG}",
        f"python3 scripts/megabuild status -o {_LONG} linux_64_cpu",
        "scripts/install-pyg --python /nowhere",
    ],
)
def test_no_word_is_broken_at_the_edge(checkout: Place, command: str, columns: int) -> None:
    seen = look(checkout, command, columns)
    assert seen.raw
    assert broken_lines(seen, columns) == []


def test_a_hint_s_command_that_is_wider_than_the_terminal_can_be_copied(pyg_user: Place) -> None:
    environment = pyg_user.home / "venv"
    seen = look(pyg_user, f"scripts/install-pyg --python {environment} --plan", 60)
    assert seen.exit_code == 4
    command = f"{environment}/bin/python -m pip install torch"
    assert len(command) > 60
    assert command in [line.strip() for line in seen.written]


def test_a_dumb_terminal_gets_plain_lines(checkout: Place) -> None:
    seen = look(checkout, "python3 build-locally.py linux_64_cuda130 --plan --pyg none", 200, TERM="dumb")
    assert "\x1b" not in seen.raw
    assert broken_lines(seen, 80) == []


def test_no_color_is_honoured(checkout: Place) -> None:
    seen = look(checkout, "python3 build-locally.py linux_64_cpx", 80, NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*m", seen.raw)


def test_off_a_terminal_nothing_is_folded_or_coloured(checkout: Place) -> None:
    answer = checkout.run("python3 build-locally.py linux_64_cpx")
    assert "\x1b" not in answer.text
    assert len([line for line in answer.text.splitlines() if line]) == 2, "one line each: error and hint"
