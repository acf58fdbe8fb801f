"""Lines that are folded for a terminal: prose at words, commands never, nothing for a pipe."""

from __future__ import annotations

import io
import re

import pytest

from groundwork.folding import fold, folded, terminal_width

COMMAND = "python3 scripts/megabuild env create ./env pytorch --python 3.13 --from linux_64_cpu-rehearsal"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def words(text: str) -> list[str]:
    return text.split()


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize(
    "line",
    [
        "error: linux_64_cpu: channel conda-forge is unreachable: conda.anaconda.org: Name or service not known, again",
        "! needs about 24.5 GB of disk, 2.6 GB of memory per compile job, and a compiler that is not installed here",
        "megabuild keeps finished packages and objects; it loses only the objects that were being compiled just then",
        "python3 is not on PATH, and no environment is active, so that there is no place for the extensions at all",
    ],
)
def test_prose_is_folded_at_words(line: str, width: int) -> None:
    lines = fold(line, width)
    assert max(map(len, lines)) <= width
    assert len(lines) > 1
    assert words(" ".join(lines)) == words(line)
    assert {text[:2] for text in lines[1:]} == {"  "}


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        (f"  {COMMAND}", [COMMAND]),
        (f"  CONDA_OVERRIDE_CUDA=13.2 {COMMAND}", [f"CONDA_OVERRIDE_CUDA=13.2 {COMMAND}"]),
        (
            "hint: run: uv python install 3.14; or, for Debian's own Python: sudo apt-get install -y python3-dev",
            ["uv python install 3.14", "sudo apt-get install -y python3-dev"],
        ),
        (
            "hint: wait for it (python3 scripts/megabuild status --follow), or pass another --output",
            ["python3 scripts/megabuild status --follow"],
        ),
        (
            "hint: run: /opt/venv/bin/python -m pip install \"nvidia-cuda-nvcc; x, y)\" 'a, b'; or set CUDA_HOME",
            ["/opt/venv/bin/python -m pip install \"nvidia-cuda-nvcc; x, y)\" 'a, b'"],
        ),
        (
            "hint: check pip's indexes (pip config list); or run: rm -r /cache/pypi/locks, then run again",
            ["pip config list", "rm -r /cache/pypi/locks"],
        ),
        (
            "hint: make an environment first: python3 -m venv venv && venv/bin/pip install torch; or pass another one",
            ["python3 -m venv venv && venv/bin/pip install torch"],
        ),
        (
            "hint: install venv; in Debian, run: su -c 'apt-get install a, b'",
            ["su -c 'apt-get install a, b'"],
        ),
    ],
)
def test_a_command_has_a_line_of_its_own_however_long(line: str, commands: list[str]) -> None:
    lines = [text.strip() for text in fold(line, 40)]
    assert [text for text in lines if text in commands] == commands
    others = [text for text in lines if text not in commands]
    assert not others or max(map(len, others)) <= 40
    kept = re.sub(r"[(),;]", "", " ".join(lines)).split()
    assert kept == re.sub(r"[(),;]", "", line).split(), "no word is lost"


def test_a_line_that_fits_stays_as_it_is() -> None:
    line = "hint: run (once): pip config list; then again"
    assert fold(line, len(line)) == [line]


def test_continued_lines_of_a_table_begin_below_its_last_column() -> None:
    assert fold("lost:        torch.compile on GPUs, and functions that use Triton", 45) == [
        "lost:        torch.compile on GPUs, and",
        "             functions that use Triton",
    ]
    assert fold("pytorch-2.13.0-cpu_mkl_py314t_h2d2fd0  build  because of it", 45)[1] == "    because of it"


def test_a_word_wider_than_the_terminal_stays_whole() -> None:
    path = "/a/path/" * 9
    assert fold(f"error: {path}: damaged", 40) == ["error:", f"  {path}:", "  damaged"]


def test_only_a_terminal_gets_folded_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    text = "one two three four five six seven eight nine ten"
    assert folded(text, io.StringIO()) == text
    assert folded(f"\n{text}", Terminal()) == "\none two three four five six seven eight\n  nine ten"


@pytest.mark.parametrize(
    ("environ", "width"),
    [
        ({"COLUMNS": "100"}, 100),
        ({"COLUMNS": "10"}, 40),
        ({"COLUMNS": "0"}, 80),
        ({"COLUMNS": "wide"}, 80),
        ({"TERM": "dumb"}, 80),
        ({"TERM": "dumb", "COLUMNS": "60"}, 60),
    ],
)
def test_the_width_is_that_of_columns_else_of_the_terminal(environ: dict[str, str], width: int) -> None:
    assert terminal_width(Terminal(), environ) == width  # this one has no size of its own
    assert terminal_width(io.StringIO(), environ) is None
